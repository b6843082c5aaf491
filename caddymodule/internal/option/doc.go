// Package option reads the options of our Caddy modules: from the Caddyfile, and with placeholders in the configuration
// that Caddy made of it.
//
//	handler.go      a handler's directive, its order among Caddy's, its position for later errors, options of features
//	block.go        the subdirectives of a block: words, switches, pairs, numbers, durations, sizes, modules
//	placeholder.go  secrets by placeholder
//	tls.go          how a server and we authenticate to each other
package option
