// Package suggestion says what a misspelt word of a Caddyfile probably stands for. It does not know Caddy.
//
//	suggestion.go   the nearest of the words that are known
//	scope.go        the same for scopes, part by part
package suggestion
