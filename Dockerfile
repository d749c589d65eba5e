# moedsl in a NeMo container, which already has Megatron Bridge:
#   docker build --build-arg NEMO=nvcr.io/nvidia/nemo:TAG -t moedsl .
#   docker run --rm -v "$PWD:/work" -w /work moedsl plan run.moe
ARG NEMO
FROM ${NEMO}
COPY pyproject.toml README.md LICENSE /src/
COPY moedsl /src/moedsl
COPY grammar /src/grammar
COPY stdlib /src/stdlib
COPY examples /src/examples
# pip keeps the container's versions: moedsl sets only lower bounds, which they meet. The check leaves the library read.
RUN pip install --no-cache-dir /src && rm -rf /src && moedsl check -e 'qwen3_30b_a3b; h100 x 8'
ENTRYPOINT ["moedsl"]
