// Package scopeoption parses options that contain lists of scopes.
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

// Words returns a setter that parses scopes. If check rejects a scope, the error suggests the most similar known scope.
func Words(to *[]string, check func(string) error) option.Setter {
	return option.Words(to, func(scope string) error {
		err := check(scope)
		if similar := Suggest(scope); err != nil && similar != "" {
			return fmt.Errorf("%w: did you mean %s?", err, similar)
		}
		return err
	})
}

// definedScopes lists the scopes with a meaning defined by OpenID Connect Core §5.4 or SMART App Launch 2.2, except those for
// resources.
var definedScopes = append([]string{
	"address", "fhirUser", "launch", "launch/encounter", "launch/patient", "offline_access", "online_access",
}, smart.ReservedScopes...)

// Suggest returns the known scope that was probably meant by a misspelled scope, or "" if there is none. A suggestion is not a
// reason to reject a scope, because a site's custom scope may resemble a known one.
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

// suggestPermission returns a permission of SMART 1, or the letters of a SMART 2 permission in the required order.
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
