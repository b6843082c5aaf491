package option

import (
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/suggestion"
)

// Scopes reads scopes. The error for an invalid one suggests what was probably meant.
func Scopes(to *[]string, check func(string) error) Setter {
	return func(d *caddyfile.Dispenser) error {
		return Words(to, func(scope string) error {
			err := check(scope)
			if meant := suggestion.Scope(scope); err != nil && meant != "" {
				return fmt.Errorf("%w: did you mean %s?", err, meant)
			}
			return err
		})(d)
	}
}
