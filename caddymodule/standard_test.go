package caddymodule

// The whole of Caddy's standard modules: a Caddyfile in a test can use them, and
// go.mod lists everything that the built binary holds.
import _ "github.com/caddyserver/caddy/v2/modules/standard"
