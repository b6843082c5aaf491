// Command build makes ./caddy, a Caddy with the modules of this repository, from xcaddy.json:
//
//	go run ./caddymodule/build [-o file]
//
// xcaddy does the work, in a temporary module that requires Caddy and replaces this module by its folder. The steps
// around it:
//
//	[readConfig]   xcaddy.json, strictly, into an [xcaddy.Builder]
//	[resolve]      its relative replacements, as seen from the temporary module
//	[setVersion]   the version of this module in the binary, from git
//	[download]     go mod download: what is fetched is checked against go.sum
//	Build          xcaddy, with no way to fetch anything else
//	[checkBinary]  each module in the binary is the one in go.mod and go.sum
//
// The network is off while xcaddy builds: its temporary module has no go.sum to check downloads against, and it asks the
// module proxy for this module before it uses the replacement, which fails unless the proxy answers "not found". All it
// needs is in the module cache, since a blank import of Caddy's standard modules keeps the whole binary in go.mod.
//
// The build has xcaddy's own flags (CGO_ENABLED=0, -trimpath, -tags nobadger,nomysql,nopgx). go test and go vet share its
// build cache if they have the same flags, and otherwise compile all of Caddy again.
package main
