// Package examples tests the files in docs/examples for clusters and for several machines.
//
// Helm's own packages render the Helm chart with each of its example values. The values must conform to the chart's schema. The
// objects must conform to the types of Kubernetes, Gateway API and the Prometheus Operator without unknown fields, and must
// match each other. Their Caddyfile must provision.
//
// The compose files are parsed as Compose parses them. Their programs are started as processes with the mounted files, on free
// ports: gateways, Redis, HAProxy, and the script that creates secrets. HAPI and Keycloak are stand-ins. No containers are
// used.
//
// CADDY_BIN is the path of the binary; default: ../../caddy.
package examples
