package enforce

import (
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/relationship"
)

// RelatedPatients are the ids of the patients for whom a RelatedPerson or a Person acts now, as the FHIR server has it.
func (e *Enforcer) RelatedPatients(r *http.Request, next NextHandler, user interaction.Reference) ([]string, error) {
	x, at := newServer(e.Base, e.Limits, e.Memory, next, r), e.addresses()
	defer x.share.Release()
	a, err := x.Ask(r.Context(), get(user.String(), ""))
	if err != nil || a.status != http.StatusOK || !a.isJSON() {
		return nil, err
	}
	res, err := at.parse(a.body)
	if err != nil || res.Type != user.Type || res.ID != user.ID {
		return nil, err
	}
	return relationship.Patients(res, time.Now()), nil
}
