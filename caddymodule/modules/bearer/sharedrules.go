package bearer

import (
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// ownShared are the rules for types that are set here.
func ownShared(configured map[string]string) (access.Shared, error) {
	own := access.Shared{}
	for resourceType, rule := range configured {
		if err := checkShared(resourceType, rule); err != nil {
			return nil, err
		}
		own[resourceType] = access.RuleNamed(rule)
	}
	return own, nil
}

// checkShared checks a rule for a type.
func checkShared(resourceType, rule string) error {
	if !interaction.IsType(resourceType) {
		return fmt.Errorf("%q is no resource type of FHIR R4", resourceType)
	}
	switch r := access.RuleNamed(rule); {
	case r == nil:
		return fmt.Errorf("%s: %q is no rule: use one of %v", resourceType, rule, access.RuleNames())
	case !r.Fits(resourceType):
		return fmt.Errorf("%s has no search parameter patient in FHIR R4, by which the rule %s goes", resourceType, rule)
	}
	return nil
}
