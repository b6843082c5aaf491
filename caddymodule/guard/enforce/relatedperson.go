package enforce

import (
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/relationship"
)

// RelatedPatients are the ids of the patients for whom a RelatedPerson or a Person acts now, as the FHIR server has it.
func (e *Enforcer) RelatedPatients(r *http.Request, next NextHandler, user interaction.Reference) ([]string, error) {
	b := newBackend(e, next, r)
	x := &judging{backend: &b}
	defer x.share.Release()
	a, err := x.ask(r.Context(), get(user.Type+"/"+user.ID, ""))
	if err != nil || a.status != http.StatusOK || !a.isJSON() {
		return nil, err
	}
	res, err := x.parse(a.body)
	if err != nil || res.Type != user.Type || res.ID != user.ID {
		return nil, err
	}
	return relationship.Patients(res, time.Now()), nil
}
