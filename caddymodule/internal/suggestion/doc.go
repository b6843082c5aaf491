// Package suggestion finds the known word that a misspelt word of a Caddyfile probably stands for. It does not know Caddy.
package suggestion
