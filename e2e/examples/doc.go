// Package examples tests what docs/examples has for clusters and for several machines.
//
// The Helm chart is rendered by Helm's own packages with each file of its examples: the values must fit its schema, the
// objects the types of Kubernetes, Gateway API and the Prometheus Operator without an unknown field, and each other. The
// Caddyfile in them must provision.
//
// The compose files are read as Compose reads them, and the programs that they name are started as processes, with the
// files that are mounted, on free ports: gateways, Redis, HAProxy, and the script that makes secrets. In place of HAPI and
// Keycloak there are stand-ins, and no container.
//
// CADDY_BIN names the binary; without it, ../../caddy is tried.
package examples
