package option

import (
	"cmp"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// ClaimNames reads our name of a claim and, if it differs, theirs.
func ClaimNames(to *map[string]string, check func(map[string]string) error) Setter {
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
		return WithLine(d, check(*to))
	}
}
