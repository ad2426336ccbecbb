# Images of Tessera: docker build --target tesserad|worker|worker-cuda|agent -t tessera-... .
#
# `build` compiles everything on BASE. Where the programs are there already (./dev images), PROGRAMS=prebuilt takes
# them from the build context instead; they must come from the same Debian. The images hold our programs and the
# libraries they link to, nothing else: no shell, no package manager, a numeric user, nothing to write to. Each has
# its SPDX document at /usr/share/tessera/sbom.spdx.json.
ARG BASE=debian:12
ARG PROGRAMS=build

FROM ${BASE} AS setup
WORKDIR /tessera
COPY dev ./
COPY deploy ./deploy
RUN ./dev setup

FROM setup AS build
COPY . .
RUN ./dev build release tesserad tessera_cli tessera-worker tessera-agent && \
    deploy/image/assemble.sh build/image build/release/bin "$(cat build/release/libtorch.path)"

FROM scratch AS prebuilt
COPY build/image /tessera/build/image

FROM ${PROGRAMS} AS programs

FROM scratch AS agent
COPY --from=programs /tessera/build/image/agent /
USER 65532:65532
ENTRYPOINT ["/usr/bin/tessera-agent"]
CMD ["--help"]

FROM scratch AS worker
COPY --from=programs /tessera/build/image/libtorch /
COPY --from=programs /tessera/build/image/worker /
ENV HOME=/tmp
USER 65532:65532
ENTRYPOINT ["/usr/bin/tessera-worker"]
CMD ["--help"]

# The worker with its CUDA plug-in and what that loads (4 GB): docs/gpu.md says how far it is tried. The NVIDIA
# container runtime brings the driver's part.
FROM build AS build-cuda
RUN ./dev build cuda && deploy/image/assemble_cuda.sh build/image/cuda build/release

FROM scratch AS prebuilt-cuda
COPY build/image/cuda /tessera/build/image/cuda

FROM ${PROGRAMS}-cuda AS cuda
FROM worker AS worker-cuda
COPY --from=cuda /tessera/build/image/cuda /
ENV LD_LIBRARY_PATH=/usr/lib/tessera NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM scratch AS tesserad
COPY --from=programs /tessera/build/image/libtorch /
COPY --from=programs /tessera/build/image/tesserad /
ENV HOME=/tmp
USER 65532:65532
ENTRYPOINT ["/usr/bin/tesserad"]
CMD ["--help"]
