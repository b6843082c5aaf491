package bearer

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// SignInPolicy is what fhir_bearer asks of how the person behind a token signed in. A token that does not say so is
// refused with what the app has to ask for (RFC 9470). The fhir app's clients that act for themselves have signed nobody
// in, and are not asked.
type SignInPolicy struct {
	// The classes of sign-in (`acr`) of which one suffices, the preferred one first. Of the fhir app's own, `sfa`, `mfa`
	// and `phr`, each includes those before it. Default: any.
	ACR []string `json:"acr,omitempty"`

	// How long ago the person may have signed in (`auth_time`). Default: for any time.
	MaxAge caddy.Duration `json:"max_age,omitempty"`
}

// check refuses a token of a person who did not sign in as the site asks. Tokens of the fhir app are our own.
func (p *SignInPolicy) check(r *http.Request, t *guard.Token, isOwn bool) error {
	if len(p.ACR) == 0 && p.MaxAge == 0 {
		return nil
	}
	if guard.TokenOf(r.Context()) != nil || isOwn && t.Subject == t.ClientID {
		return nil
	}
	required := guard.StepUp{ACR: p.ACR, MaxAge: time.Duration(p.MaxAge)}
	if isOwn {
		required.Meets = includesACR
	}
	return required.Check(t, time.Now())
}

// includesACR reports whether the class of a token of ours includes another.
func includesACR(t *guard.Token, wanted string) bool {
	return slices.Contains(oauth2.ACRValues, wanted) && oauth2.MeetsACR(t.ACR, wanted)
}

// checkClasses refuses classes that no token can have, where only the fhir app's are accepted.
func (p *SignInPolicy) checkClasses(ownAlone bool) error {
	for _, class := range p.ACR {
		if ownAlone && !slices.Contains(oauth2.ACRValues, class) {
			return fmt.Errorf("acr %q is not one of %q, and no other issuer is trusted: no token would pass", class, oauth2.ACRValues)
		}
	}
	return nil
}

// checkACR refuses what cannot stand in acr_values.
func checkACR(class string) error {
	if strings.ContainsFunc(class, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
		return fmt.Errorf("acr %q has characters that no challenge can have", class)
	}
	return nil
}
