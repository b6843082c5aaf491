// Package scopeoption parses options that list scopes.
package scopeoption

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/suggestion"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Words parses scopes. An error from check is extended by the known scope that resembles the rejected one.
func Words(to *[]string, check func(string) error) option.Setter {
	return option.Words(to, func(scope string) error {
		err := check(scope)
		if similar := Suggest(scope); err != nil && similar != "" {
			return fmt.Errorf("%w: did you mean %s?", err, similar)
		}
		return err
	})
}

// definedScopes are the scopes with a defined meaning, apart from those for resources (OpenID Connect Core §5.4, SMART
// App Launch 2.2).
var definedScopes = append([]string{
	"address", "fhirUser", "launch", "launch/encounter", "launch/patient", "offline_access", "online_access",
}, smart.ReservedScopes...)

// Suggest returns the known scope that a misspelled scope probably stands for, or "". A suggestion is no reason to
// reject a scope, because a site's own scope may resemble a known one.
func Suggest(scope string) string {
	level, rest, resource := strings.Cut(scope, "/")
	if !resource || level == "launch" {
		if slices.Contains(definedScopes, scope) {
			return ""
		}
		return suggestion.Nearest(scope, definedScopes)
	}
	levels := []string{"patient", "system", "user"}
	if !slices.Contains(levels, level) {
		level = suggestion.Nearest(level, levels)
	}
	typ, permission, _ := strings.Cut(rest, ".")
	if typ != smart.AnyType && !interaction.IsType(typ) {
		if nearest := suggestion.Nearest(typ, interaction.Types()); nearest != "" {
			typ = nearest
		}
	}
	if _, ok := smart.ParseResourceScope("patient/*." + permission); !ok {
		permission = suggestPermission(permission)
	}
	corrected := level + "/" + typ + "." + permission
	if _, ok := smart.ParseResourceScope(corrected); !ok || corrected == scope {
		return ""
	}
	return corrected
}

// suggestPermission returns a permission of SMART 1, or the letters of SMART 2 in the right order.
func suggestPermission(permission string) string {
	const letters = "cruds"
	if strings.Trim(permission, letters) != "" {
		return suggestion.Nearest(permission, []string{"read", "write"})
	}
	return strings.Map(func(letter rune) rune {
		if strings.ContainsRune(permission, letter) {
			return letter
		}
		return -1
	}, letters)
}
