// Package examples tests the files in docs/examples for clusters and for several machines.
//
// The Helm chart is rendered by Helm's own packages with each of its example values: the values must conform to its
// schema, the objects to the types of Kubernetes, Gateway API and the Prometheus Operator without unknown fields, and
// the objects must match each other. Their Caddyfile must provision.
//
// The compose files are parsed as Compose parses them. Their programs are started as processes with the mounted files,
// on free ports: gateways, Redis, HAProxy, and the script that creates secrets. HAPI and Keycloak are stand-ins. No
// containers are used.
//
// CADDY_BIN is the path of the binary; default: ../../caddy.
package examples
