package option

import (
	"cmp"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// ClaimNames reads our name of a claim and, if it differs, theirs.
func ClaimNames(to *map[string]string) Setter {
	return func(d *caddyfile.Dispenser) error {
		ours, theirs, err := OneOrTwo(d)
		if err != nil {
			return err
		}
		if _, ok := (*to)[ours]; ok {
			return d.Errf("duplicate token_claim %s", ours)
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[ours] = cmp.Or(theirs, ours)
		return WithLine(d, tokenclaim.CheckAll(*to))
	}
}
