package enforce

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// RelatedPatient is the id of the patient to whom a RelatedPerson is related, as the FHIR server has it. Empty if it
// has no such person.
func (e *Enforcer) RelatedPatient(r *http.Request, next NextHandler, id string) (string, error) {
	b := newBackend(e, next, r)
	x := &judging{backend: &b}
	defer x.share.Release()
	a, err := x.ask(r.Context(), get("RelatedPerson/"+id, ""))
	if err != nil || a.status != http.StatusOK || !a.isJSON() {
		return "", err
	}
	res, err := x.parse(a.body)
	if err != nil || res.Type != "RelatedPerson" || res.ID != id {
		return "", err
	}
	for value := range res.Values(resource.Path{Elements: []string{"patient"}}) {
		if to, _, ok := res.Refers(value); ok && to.Type == "Patient" && to.Base == "" {
			return to.ID, nil
		}
	}
	return "", nil
}
