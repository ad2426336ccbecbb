# Images of Tessera: docker build --target tesserad|worker|worker-cuda|agent -t tessera-... .
#
# `build` compiles everything on BASE. Where the programs are there already, `--build-context programs=FOLDER` takes what
# deploy/image/assemble.sh made of them instead; they must come from the same Debian. The images hold our programs and the
# libraries they link to, nothing else: no shell, no package manager, a numeric user, nothing to write to. Each has
# its SPDX document at /usr/share/tessera/sbom.spdx.json.
ARG BASE=debian:12

FROM ${BASE} AS setup
WORKDIR /tessera
COPY dev ./
COPY deploy ./deploy
RUN ./dev setup

FROM setup AS build
COPY . .
RUN ./dev build release tesserad tessera_cli tessera-worker tessera-agent && \
    deploy/image/assemble.sh /programs build/release/bin "$(cat build/release/libtorch.path)"

FROM scratch AS programs
COPY --from=build /programs /

FROM scratch AS agent
COPY --from=programs /agent /
USER 65532:65532
ENTRYPOINT ["/usr/bin/tessera-agent"]
CMD ["--help"]

FROM scratch AS worker
COPY --from=programs /libtorch /
COPY --from=programs /worker /
ENV HOME=/tmp
USER 65532:65532
ENTRYPOINT ["/usr/bin/tessera-worker"]
CMD ["--help"]

# The worker with its CUDA plug-in and what that loads (4 GB): docs/gpu.md says how far it is tried. The NVIDIA
# container runtime brings the driver's part, and whoever starts the container says which devices.
# `--build-context cuda=FOLDER` takes what assemble_cuda.sh made.
FROM build AS build-cuda
RUN ./dev build cuda && deploy/image/assemble_cuda.sh /programs/cuda build/release

FROM scratch AS cuda
COPY --from=build-cuda /programs/cuda /

FROM worker AS worker-cuda
COPY --from=cuda / /
ENV LD_LIBRARY_PATH=/usr/lib/tessera NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM scratch AS tesserad
COPY --from=programs /libtorch /
COPY --from=programs /tesserad /
ENV HOME=/tmp
USER 65532:65532
ENTRYPOINT ["/usr/bin/tesserad"]
CMD ["--help"]
