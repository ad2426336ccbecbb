# tessera_embed(TARGET FUNCTION NAME=PATH ...)
# Adds a source to TARGET that defines `absl::Span<const tessera::EmbeddedFile> tessera::FUNCTION()`, the files
# under their names in the order given.
function(tessera_embed target function)
  set(declarations "")
  set(table "")
  set(paths "")
  set(index 0)
  foreach(entry ${ARGN})
    string(REGEX MATCH "^([^=]+)=(.*)$" _ "${entry}")
    set(name "${CMAKE_MATCH_1}")
    set(path "${CMAKE_MATCH_2}")
    set(symbol "tessera_${function}_${index}")
    string(APPEND declarations
      "asm(\".section .rodata,\\\"a\\\",@progbits\\n.balign 8\\n.globl ${symbol}\\n${symbol}:\\n.incbin \\\"${path}\\\"\\n\"\n"
      "    \".globl ${symbol}_end\\n${symbol}_end:\\n.byte 0\\n.previous\\n\");\n"
      "extern \"C\" const char ${symbol}[];\nextern \"C\" const char ${symbol}_end[];\n")
    string(APPEND table "      {\"${name}\", {${symbol}, static_cast<size_t>(${symbol}_end - ${symbol})}},\n")
    list(APPEND paths "${path}")
    math(EXPR index "${index} + 1")
  endforeach()
  set(source "${CMAKE_CURRENT_BINARY_DIR}/embedded_${function}.cc")
  file(CONFIGURE OUTPUT "${source}" CONTENT
"#include \"absl/types/span.h\"
#include \"base/embedded_file.h\"

${declarations}
namespace tessera {
absl::Span<const EmbeddedFile> ${function}() {
  static const EmbeddedFile kFiles[] = {
${table}  };
  return kFiles;
}
}  // namespace tessera
" @ONLY)
  set_source_files_properties("${source}" PROPERTIES OBJECT_DEPENDS "${paths}")
  target_sources(${target} PRIVATE "${source}")
endfunction()
