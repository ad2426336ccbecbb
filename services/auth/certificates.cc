#include "services/auth/certificates.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace tessera::services {
namespace {

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;

absl::Status Broken(const char* doing) {
  char text[256] = "";
  ERR_error_string_n(ERR_get_error(), text, sizeof text);
  return absl::InternalError(absl::StrCat("OpenSSL can't ", doing, ": ", text));
}

absl::Status WriteFile(const std::string& path, const std::string& text, mode_t mode) {
  const std::string temporary = path + ".new";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", temporary));
  const bool written = ::fchmod(fd, mode) == 0 &&
                       ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::fsync(fd) == 0;
  ::close(fd);
  if (!written || ::rename(temporary.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

template <typename Write>
std::string Pem(Write write) {
  const Bio bio(BIO_new(BIO_s_mem()));
  write(bio.get());
  char* data = nullptr;
  const long length = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(length));
}

std::string PemOf(const Certificate& certificate) {
  return Pem([&](BIO* bio) { PEM_write_bio_X509(bio, certificate.get()); });
}
std::string PemOf(const Key& key) {
  return Pem([&](BIO* bio) {
    PEM_write_bio_PKCS8PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
}

bool Extend(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  if (extension == nullptr) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

struct Request {
  std::string name;
  absl::Duration life;
  bool authority = false;
  std::string alternatives;  // "DNS:a,IP:b"
};

// Signed by `issuer`, or by itself when that is null.
absl::StatusOr<Certificate> Sign(const Request& request, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key,
                                 absl::Time now) {
  Certificate certificate(X509_new());
  X509* x = certificate.get();
  unsigned char serial[16];
  if (RAND_bytes(serial, sizeof serial) != 1) return Broken("draw a serial number");
  serial[0] &= 0x7f;
  BIGNUM* number = BN_bin2bn(serial, sizeof serial, nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(x));
  BN_free(number);
  X509_set_version(x, 2);
  ASN1_TIME_set(X509_getm_notBefore(x),
                absl::ToTimeT(now - absl::Hours(1)));  // of clients whose clock is behind
  ASN1_TIME_set(X509_getm_notAfter(x), absl::ToTimeT(now + request.life));
  X509_set_pubkey(x, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(request.name.c_str()), -1, -1, 0);
  X509_set_issuer_name(x, X509_get_subject_name(issuer == nullptr ? x : issuer));
  X509* signer = issuer == nullptr ? x : issuer;
  bool good = Extend(x, signer, NID_basic_constraints,
                     request.authority ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE") &&
              Extend(x, signer, NID_key_usage,
                     request.authority ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature") &&
              Extend(x, signer, NID_subject_key_identifier, "hash") &&
              Extend(x, signer, NID_authority_key_identifier, "keyid:always");
  if (!request.authority) {
    good = good && Extend(x, signer, NID_ext_key_usage, "serverAuth") &&
           Extend(x, signer, NID_subject_alt_name, request.alternatives);
  }
  if (!good || X509_sign(x, issuer_key, EVP_sha256()) == 0) return Broken("sign a certificate");
  return certificate;
}

absl::StatusOr<std::string> Alternatives(const std::vector<std::string>& hosts) {
  std::vector<std::string> names;
  for (const std::string& host : hosts) {
    unsigned char address[16];
    const bool ip =
        ::inet_pton(AF_INET, host.c_str(), address) == 1 || ::inet_pton(AF_INET6, host.c_str(), address) == 1;
    for (const char c : host) {
      if (!ip && !std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.' && c != '*') {
        return absl::InvalidArgumentError(absl::StrCat("'", host, "' is neither a name nor an address"));
      }
    }
    if (host.empty()) return absl::InvalidArgumentError("a host must have a name");
    names.push_back(absl::StrCat(ip ? "IP:" : "DNS:", host));
  }
  return absl::StrJoin(names, ",");
}

template <typename Read>
auto ReadPem(const std::string& path, Read read) {
  const Bio bio(BIO_new_file(path.c_str(), "r"));
  return bio == nullptr ? nullptr : read(bio.get(), nullptr, nullptr, nullptr);
}

}  // namespace

absl::StatusOr<IssuedFiles> IssueCertificates(const std::string& folder,
                                              const std::vector<std::string>& hosts, absl::Time now) {
  TESSERA_ASSIGN_OR_RETURN(const std::string alternatives, Alternatives(hosts));
  std::error_code error;
  if (std::filesystem::create_directories(folder, error)) ::chmod(folder.c_str(), 0700);
  if (error)
    return absl::FailedPreconditionError(absl::StrCat("cannot create ", folder, ": ", error.message()));
  IssuedFiles files{folder + "/ca.pem", folder + "/server.pem", folder + "/server.key"};
  const std::string authority_key_file = folder + "/ca.key";
  Certificate authority(ReadPem(files.authority, PEM_read_bio_X509));
  Key authority_key(ReadPem(authority_key_file, PEM_read_bio_PrivateKey));
  if ((authority == nullptr) != (authority_key == nullptr)) {
    return absl::FailedPreconditionError(
        absl::StrCat(authority == nullptr ? files.authority : authority_key_file,
                     " can't be read and its partner can; restore it, or remove both to begin anew"));
  }
  if (authority == nullptr) {
    authority_key.reset(EVP_EC_gen("P-256"));
    if (authority_key == nullptr) return Broken("make a key");
    TESSERA_ASSIGN_OR_RETURN(authority, Sign({"Tessera local authority", kAuthorityLife, true, ""},
                                             authority_key.get(), nullptr, authority_key.get(), now));
    TESSERA_RETURN_IF_ERROR(WriteFile(authority_key_file, PemOf(authority_key), 0600));
    TESSERA_RETURN_IF_ERROR(WriteFile(files.authority, PemOf(authority), 0644));
    files.new_authority = true;
  }
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return Broken("make a key");
  TESSERA_ASSIGN_OR_RETURN(const Certificate certificate,
                           Sign({"tesserad", kCertificateLife, false, alternatives}, key.get(),
                                authority.get(), authority_key.get(), now));
  TESSERA_RETURN_IF_ERROR(WriteFile(files.key, PemOf(key), 0600));
  TESSERA_RETURN_IF_ERROR(WriteFile(files.certificate, PemOf(certificate), 0644));
  return files;
}

}  // namespace tessera::services
