// Package option reads the options of our Caddy modules: from the Caddyfile, and with placeholders in the configuration
// that Caddy made of it.
//
//	handler.go      a handler's directive, and its order among Caddy's
//	block.go        the subdirectives of a block: words, switches, pairs
//	number.go       numbers, durations, sizes
//	guest.go        the module that a word names
//	suggestion.go   did you mean …?
//	source.go       where a handler is written, for later errors
//	placeholder.go  secrets by placeholder
//	tls.go          how a server and we authenticate to each other
package option
