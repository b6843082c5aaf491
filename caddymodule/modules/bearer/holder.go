package bearer

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// enforcement has requests answered as far as the scopes of their tokens allow.
type enforcement struct{ enforcer *enforce.Enforcer }

// holder is what is kept with a token.
type holder struct {
	fhirUser string // as it was then, since it is not the token's alone
	rights   *enforce.Rights
	binding  string
}

// serve has the token's requests answered as far as its scopes allow.
func (e *enforcement) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, t *guard.Token) error {
	of, err := e.holderOf(r, next, t)
	if err != nil {
		return err
	}
	return e.enforcer.Serve(w, r, next, enforce.Bearer{Rights: of.rights, Binding: of.binding, Token: t})
}

// holderOf is who holds a token. It is kept, because parsing scopes costs more than all the rest of a request that
// passes. The rights of a RelatedPerson depend on a record, and so do those of who acts for the patient of the token.
func (e *enforcement) holderOf(r *http.Request, next caddyhttp.Handler, t *guard.Token) (*holder, error) {
	if known, ok := t.Memo.Load().(*holder); ok && known.fhirUser == t.FHIRUser {
		return known, nil
	}
	rights, lasting, err := e.rightsOf(r, next, t)
	if err != nil {
		return nil, err
	}
	of := &holder{t.FHIRUser, rights, bindingOf(t)}
	if lasting {
		t.Memo.Store(of)
	}
	return of, nil
}

// bindingOf is what a sealed link is bound to: a token of another kind has other text here.
func bindingOf(t *guard.Token) string {
	return strings.Join([]string{"fhir", t.Issuer, t.Subject, t.ClientID, t.Patient, t.FHIRUser, t.Scope}, "\x00")
}

// bindingClient returns the part of a binding that names the client and the person: tokens with other scopes share it.
func bindingClient(binding string) string {
	return strings.Join(strings.SplitN(binding, "\x00", 5)[:4], "\x00")
}

// rightsOf are what the token may do; lasting says that they depend on no record.
func (e *enforcement) rightsOf(r *http.Request, next caddyhttp.Handler, t *guard.Token) (rights *enforce.Rights, lasting bool, err error) {
	holder := enforce.Holder{Scope: t.Scope, Patient: t.Patient, User: e.userOf(t.FHIRUser), Parameters: e.enforcer.Parameters}
	lasting = !t.Related && holder.User.Type != "RelatedPerson"
	if holder.User.Type == "Patient" {
		holder.UserPatient = holder.User.ID
	}
	if !lasting {
		if err = e.relate(r, next, t, &holder); err != nil {
			return nil, false, err
		}
	}
	rights = enforce.NewRights(holder, e.enforcer.Shared)
	if len(e.enforcer.ExpandScopes) == 0 || rights.HasOne(e.enforcer.ExpandScopes) {
		rights.Add(enforce.Terminology()...)
	}
	return rights, lasting, nil
}

// relate finds for whom the holder acts now, and takes the patient of the token from who acts for them no longer.
func (e *enforcement) relate(r *http.Request, next caddyhttp.Handler, t *guard.Token, holder *enforce.Holder) error {
	var patients []string
	if holder.User.Type == "RelatedPerson" || holder.User.Type == "Person" {
		var err error
		if patients, err = e.enforcer.RelatedPatients(r, next, holder.User, t); err != nil {
			return err
		}
	}
	if holder.User.Type == "RelatedPerson" && len(patients) > 0 {
		holder.UserPatient = patients[0]
	}
	if t.Related && !slices.Contains(patients, t.Patient) {
		holder.Patient, holder.Ended = "", true
	}
	return nil
}

// userOf is the resource that fhirUser names on this server. One of another server's is a person without records
// here, but a practitioner in any case.
func (e *enforcement) userOf(fhirUser string) interaction.Reference {
	local := strings.TrimPrefix(fhirUser, e.enforcer.BaseURL+"/")
	resourceType, id, ok := strings.Cut(local, "/")
	if ok && interaction.IsType(resourceType) && !strings.Contains(id, "/") {
		return interaction.Reference{Type: resourceType, ID: id}
	}
	parts := strings.Split(fhirUser, "/")
	if n := len(parts); n >= 2 && strings.HasPrefix(parts[n-2], "Practitioner") {
		return interaction.Reference{Type: parts[n-2]}
	}
	return interaction.Reference{}
}
