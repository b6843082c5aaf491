// Package option parses the options of the project's Caddy modules: in the Caddyfile and, for placeholders, in the adapted
// configuration.
//
//	handler.go      directives of handlers: order among Caddy's directives, position for later errors, options of features
//	block.go        subdirectives of a block: words, switches, pairs, numbers, durations, sizes, modules
//	placeholder.go  secrets by placeholder
//	tls.go          TLS authentication between the gateway and a server
package option
