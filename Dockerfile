# docker build -t drrej . && docker run --rm -v "$PWD:/data" drrej inspect val.parquet
FROM python:3.12.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY drrej drrej
RUN python -m venv /opt/drrej \
 && /opt/drrej/bin/pip install --no-cache-dir --require-hashes -r requirements.lock \
 && /opt/drrej/bin/pip install --no-cache-dir --no-deps .

FROM python:3.12.12-slim
COPY --from=build /opt/drrej /opt/drrej
RUN useradd --uid 10001 --create-home drrej
USER drrej
WORKDIR /data
ENTRYPOINT ["/opt/drrej/bin/drrej"]
CMD ["--help"]
