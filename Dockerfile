# docker build -t nearfar . && docker run --rm -v "$PWD:/work" nearfar train photos/ --out runs/photos
FROM python:3.13-slim

# PyTorch for CPUs; for GPUs: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

COPY pyproject.toml README.md LICENSE /nearfar/
COPY src /nearfar/src
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" torch torchvision \
    && pip install --no-cache-dir "/nearfar[all,vision]" \
    && useradd --create-home user

USER user
WORKDIR /work
ENTRYPOINT ["nearfar"]
CMD ["--help"]
