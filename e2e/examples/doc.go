// Package examples tests the examples in docs/examples for clusters and for several machines.
//
// The Helm chart is rendered by Helm's own packages with each file of its examples: the values must match its schema,
// and the objects the types of Kubernetes, Gateway API and the Prometheus Operator without unknown fields, and each
// other. The Caddyfile in them must provision.
//
// The compose files are parsed as Compose would, and their programs are started as processes, with the mounted files, on
// free ports: gateways, Redis, HAProxy, and the script that creates secrets. Stand-ins replace HAPI and Keycloak, and
// no container is used.
//
// CADDY_BIN specifies the binary; the default is ../../caddy.
package examples
