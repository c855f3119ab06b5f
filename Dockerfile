# Build:  docker build -t forecaster .
# Train:  docker run --rm -v "$PWD/outputs:/app/outputs" --user "$(id -u):$(id -g)" forecaster experiment=sp500
#
# Runs are written to /app/outputs. A folder of the host that is mounted there keeps the host's owner, so run as that
# owner: --user with the ids of whoever owns ./outputs (make the folder first: the engine would make it root's).
# A named volume (-v forecaster-outputs:/app/outputs) needs no --user: it begins as a copy of the folder made below.
# PyPI's torch for Linux brings CUDA along, so the image is large; training runs on the CPU.
# Another verb:  docker run --rm -v ... --entrypoint forecaster forecaster report run=outputs/sp500/...
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

WORKDIR /app

# The dependencies are a layer of their own: a change of the source doesn't download them again.
COPY requirements.lock ./
RUN pip install --requirement requirements.lock

COPY pyproject.toml README.md LICENSE train.py ./
COPY src ./src
COPY conf ./conf
RUN pip install --no-deps --no-build-isolation --editable .

# HOME and the caches are writable for any uid that --user may name, one without an entry in /etc/passwd too.
ENV HOME=/tmp/home \
    USER=forecaster
RUN useradd --uid 1000 --no-create-home forecaster \
    && install --directory --owner forecaster --mode 0755 /app/outputs \
    && install --directory --mode 1777 /tmp/home
USER forecaster
VOLUME /app/outputs

ENTRYPOINT ["python", "train.py"]
