# Images of Tessera: docker build --target tesserad|worker|agent -t tessera-... .
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

# Never built or run yet: the worker refuses jobs that ask for GPUs. This is where the libraries go for the day it
# does not: LibTorch's CUDA half and NVIDIA's packages, as the wheel of PyTorch requires them.
FROM ${BASE} AS cuda
RUN apt-get update -q && apt-get install -qy --no-install-recommends python3-pip python3-venv
COPY deploy/libtorch.requirements /
RUN python3 -m venv /venv && \
    /venv/bin/pip install --no-cache-dir "$(grep -o '^torch==[0-9.]*' /libtorch.requirements)" && \
    mkdir -p /root-folder/usr/lib/tessera && \
    find /venv/lib -path '*/torch/lib/*.so*' -o -path '*/nvidia/*/lib/*.so*' | xargs cp -t /root-folder/usr/lib/tessera
FROM worker AS worker-cuda
COPY --from=cuda /root-folder /
ENV LD_LIBRARY_PATH=/usr/lib/tessera NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM scratch AS tesserad
COPY --from=programs /tessera/build/image/libtorch /
COPY --from=programs /tessera/build/image/tesserad /
ENV HOME=/tmp
USER 65532:65532
ENTRYPOINT ["/usr/bin/tesserad"]
CMD ["--help"]
