// Package scopeoption reads options that list scopes.
package scopeoption

import (
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// Words parses scopes. The error of check gets the known scope that the rejected one resembles.
func Words(to *[]string, check func(string) error) option.Setter {
	return option.Words(to, func(scope string) error {
		err := check(scope)
		if similar := Suggest(scope); err != nil && similar != "" {
			return fmt.Errorf("%w: did you mean %s?", err, similar)
		}
		return err
	})
}
