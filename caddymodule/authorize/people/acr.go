package people

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// multiFactor is the amr of two factors (RFC 8176 §2).
const multiFactor = "mfa"

// factorKinds are the methods that an amr may name (RFC 8176 §2), by the kind of factor that each
// is. Two of one kind are one factor. ngcmfa is Microsoft's word for mfa.
var factorKinds = map[string][]string{
	"knowledge":  {multiFactor, "ngcmfa", "pwd", "pin", "kba"},
	"possession": {multiFactor, "ngcmfa", "otp", "sms", "tel", "hwk", "swk", "sc"},
	"inherence":  {"face", "fpt", "iris", "retina", "vbm"},
}

// CheckMappedACR returns an error if a provider's acr cannot stand for a class. None stands for a
// phishing-resistant sign-in: we did not see the key.
func CheckMappedACR(theirs, class string) error {
	if strings.ContainsFunc(theirs, unicode.IsSpace) {
		return fmt.Errorf("acr_map %q: an acr has no spaces", theirs)
	}
	if class != oauth2.ACRSingleFactor && class != oauth2.ACRMultiFactor {
		return fmt.Errorf("acr_map %s to %q: use %s or %s", theirs, class, oauth2.ACRSingleFactor, oauth2.ACRMultiFactor)
	}
	return nil
}

// ACRMap has the class of sign-in here for what a provider says in its acr.
type ACRMap map[string]string

// Words are the provider's words for a class, or nil.
func (m ACRMap) Words(class string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m)), func(theirs string) bool { return m[theirs] != class })
}

// AMR is how a person signed in at the provider (RFC 8176), by its claims, of which one is its acr. It
// has mfa exactly if that were two factors: as the map says, or else by two methods of different kinds.
func (m ACRMap) AMR(claims map[string]any, acr string) []string {
	amr, _ := tokenclaim.List(claims["amr"])
	two := twoFactors(amr)
	if class := m.class(claims[cmp.Or(acr, "acr")]); class != "" {
		two = class == oauth2.ACRMultiFactor
	}
	amr = slices.DeleteFunc(amr, func(method string) bool { return method == multiFactor && !two })
	if two && !slices.Contains(amr, multiFactor) {
		amr = append(amr, multiFactor)
	}
	return amr
}

// class is the strongest class for what the provider says; "" for none.
func (m ACRMap) class(claim any) (class string) {
	values, _ := tokenclaim.List(claim)
	for _, theirs := range values {
		if ours := m[theirs]; ours != "" && oauth2.MeetsACR(ours, class) {
			class = ours
		}
	}
	return class
}

func twoFactors(amr []string) bool {
	kinds := 0
	for _, methods := range factorKinds {
		if slices.ContainsFunc(amr, func(method string) bool { return slices.Contains(methods, method) }) {
			kinds++
		}
	}
	return kinds > 1
}
