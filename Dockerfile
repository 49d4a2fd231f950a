# The service, in an image without tools to build it and without a shell to start it.
#
#   docker build -t pointsman .
#
# Nothing is downloaded when it runs: the default embedder's weights come with a package, and its graph is made here.

FROM python:3.12-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    POINTSMAN_CACHE=/data/cache
RUN ["python", "-m", "venv", "/opt/pointsman"]
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN ["/opt/pointsman/bin/python", "-m", "pip", "install", ".[server,mcp]"]
# The build fails here if the embedder does not work on what was just installed.
# hadolint ignore=DL3059
RUN ["/opt/pointsman/bin/python", "-c", "from pointsman.embedders import default_embedder; default_embedder().embed_queries(['ready'])"]

FROM python:3.12-slim-bookworm
LABEL org.opencontainers.image.title="Pointsman" \
      org.opencontainers.image.description="Retrieval between a language model and its data, over HTTP" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN ["useradd", "--system", "--uid", "10001", "--user-group", "--no-create-home", "--home-dir", "/data", "--shell", "/usr/sbin/nologin", "pointsman"]
COPY --from=build /opt/pointsman /opt/pointsman
# A new named volume takes over what the image has at its place: the embedder's graph, and the owner.
COPY --from=build --chown=pointsman:pointsman /data /data
ENV PATH=/opt/pointsman/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ORT_DISABLE_TELEMETRY=1 \
    POINTSMAN_CACHE=/data/cache \
    POINTSMAN_WORKSPACE=/data/workspace
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "from urllib.request import ProxyHandler, build_opener as opener; opener(ProxyHandler({})).open('http://127.0.0.1:8080/ready', timeout=4)"]
ENTRYPOINT ["pointsman"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8080"]
