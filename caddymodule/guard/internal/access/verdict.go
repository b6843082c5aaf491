package access

import (
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Verdict says whether a grant covers a resource.
type Verdict struct {
	// Covered says that it does, if all of Needed are covered too.
	Covered bool
	// Needed are other resources on which it depends. Empty if the resource says all by itself.
	Needed []interaction.Reference
}

var (
	covered  = Verdict{Covered: true}
	outside  = Verdict{}
	byItself = func(ok bool) Verdict { return Verdict{Covered: ok} }
)

// and is the verdict where something else must hold, too.
func (v Verdict) and(ok bool) Verdict {
	if !ok {
		return outside
	}
	return v
}

// containsOnly reports whether nothing contained in the resource names another patient. What names none belongs to
// what contains it.
func containsOnly(res resource.Resource, patient string) bool {
	if _, ok := res.Member("contained"); !ok {
		return true
	}
	for text := range res.Contained() {
		contained, err := resource.Parse(text)
		if err != nil {
			return false
		}
		for id := range compartment.Patients(contained) {
			if id != patient && contained.Type != "Patient" {
				return false
			}
		}
	}
	return true
}

func matches(parameters searchparam.Set, p smart.Parameter, res resource.Resource) bool {
	parameter, ok := parameters.Lookup(res.Type, p.Name)
	if !ok {
		return false
	}
	ok, err := parameter.Matches(res, p.Value)
	return ok && err == nil
}

// maxNeeded bounds what one resource may depend on.
const maxNeeded = 20
