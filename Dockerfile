# The gateway in an image without anything else: no shell, no root, nothing to write but the volume /data.
#
#	docker build -t caddy-fhir .     (by BuildKit: Docker's buildx plugin, or docker compose build)
#	docker run --read-only -p 8443:8443 -v caddy-fhir:/data caddy-fhir
#
# With SOURCE_DATE_EPOCH and rewrite-timestamp (buildah: --timestamp), two builds are the same bit for bit.
ARG GO_IMAGE=docker.io/library/golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath -tags=nobadger,nomysql,nopgx"
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH TARGETVARIANT
# the builder is for this machine, and the binary for the image's
RUN go build -o /tmp/build ./caddymodule/build \
	&& GOOS=$TARGETOS GOARCH=$TARGETARCH GOARM=${TARGETVARIANT#v} /tmp/build -o /out/usr/bin/caddy \
	&& install -D -m 644 /etc/ssl/certs/ca-certificates.crt -t /out/etc/ssl/certs \
	&& install -D -m 644 "$(go env GOROOT)/lib/time/zoneinfo.zip" -t /out/usr/share \
	&& install -D -m 644 docs/examples/packages/Caddyfile -t /out/etc/caddy \
	&& install -D -m 644 LICENSE NOTICE -t /out/usr/share/doc/caddy-fhir \
	&& install -d -m 700 /state/data

FROM scratch
COPY --from=build /out/ /
COPY --from=build --chown=65532:65532 /state/ /
ENV XDG_DATA_HOME=/data XDG_CONFIG_HOME=/data/config ZONEINFO=/usr/share/zoneinfo.zip FHIR_HEALTH=:8081
LABEL org.opencontainers.image.title=caddy-fhir \
	org.opencontainers.image.source=https://github.com/caddy-fhir/caddy-fhir \
	org.opencontainers.image.licenses=Apache-2.0
USER 65532:65532
VOLUME /data
EXPOSE 8443 8081
ENTRYPOINT ["/usr/bin/caddy"]
CMD ["run", "--config", "/etc/caddy/Caddyfile"]
