package signin

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Parameters say how the person is to sign in (OpenID Connect Core §3.1.2.1).
type Parameters struct {
	Subjects []string // who may sign in, by sub; nil for everybody

	// These choose the way to sign in, and are passed on to an identity provider.
	IdentityProvider, LoginHint, Prompt, MaxAge, UILocales, ACRValues string

	EssentialACR string // the class of sign-in that must be met; "" for any
	Anew         bool   // even who is signed in must sign in again
}

// Read reads the parameters of OpenID Connect.
func (ps *Parameters) Read(p oauth2.Parameters) error {
	ps.LoginHint, ps.Prompt = p.Get("login_hint"), p.Get("prompt")
	ps.MaxAge, ps.UILocales, ps.ACRValues = p.Get("max_age"), p.Get("ui_locales"), p.Get("acr_values")
	if _, err := strconv.ParseUint(ps.MaxAge, 10, 31); ps.MaxAge != "" && err != nil {
		return oauth2.InvalidRequest("max_age must be a number of seconds")
	}
	if ps.Prompts("none") && len(strings.Fields(ps.Prompt)) > 1 {
		return oauth2.InvalidRequest("prompt none cannot have another beside it")
	}
	return nil
}

// Prompts reports whether prompt has a word.
func (ps *Parameters) Prompts(word string) bool {
	return slices.Contains(strings.Fields(ps.Prompt), word)
}

// RestrictTo lets only people with these subs sign in.
func (ps *Parameters) RestrictTo(subjects []any) error {
	var both []string
	for _, v := range subjects {
		if sub, ok := v.(string); ok && ps.IsFor(sub) {
			both = append(both, sub)
		}
	}
	if ps.Subjects = both; len(both) == 0 {
		return &oauth2.Error{Code: "login_required", Description: "no person has the sub that is asked for"}
	}
	return nil
}

// IsFor reports whether a person may sign in.
func (ps *Parameters) IsFor(subject string) bool {
	return ps.Subjects == nil || slices.Contains(ps.Subjects, subject)
}

// freshEnough reports whether a sign-in of an age is recent enough for the client.
func (ps *Parameters) freshEnough(age time.Duration) bool {
	return !ps.TooOld(age, 0) && !ps.Prompts("login") && !ps.Anew
}

// TooOld reports whether a sign-in of an age is older than max_age and than least.
func (ps *Parameters) TooOld(age, least time.Duration) bool {
	seconds, err := strconv.Atoi(ps.MaxAge)
	return err == nil && age > max(time.Duration(seconds)*time.Second, least)
}

// WantACR reads a request for the claim acr (OpenID Connect Core §5.5.1.1) by its values: an
// essential one must be met, any other is as good as acr_values.
func (ps *Parameters) WantACR(values []any, essential bool) error {
	var words []string
	for _, v := range values {
		if word, ok := v.(string); ok {
			words = append(words, word)
		}
	}
	class := weakestACR(words)
	switch {
	case !essential:
		ps.ACRValues = strings.TrimSpace(ps.ACRValues + " " + class)
	case class == "" && values != nil:
		return &oauth2.Error{Code: "unmet_authentication_requirements", Description: "no acr that is asked for is known here"}
	default:
		ps.EssentialACR = class
	}
	return nil
}

// weakestACR returns the weakest class of those that are known, or "".
func weakestACR(words []string) string {
	i := slices.IndexFunc(oauth2.ACRValues, func(class string) bool { return slices.Contains(words, class) })
	if i < 0 {
		return ""
	}
	return oauth2.ACRValues[i]
}
