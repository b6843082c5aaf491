package people

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

func TestIdentityClaims(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		p      IdentityProvider
		claims map[string]any
		want   User
	}{
		{"the standard's names", IdentityProvider{}, map[string]any{
			"name": "Ada", "preferred_username": "ada", "email": "ada@x.example", "email_verified": true, "phone_number": "+1",
		}, User{Name: "Ada", username: "ada", Email: "ada@x.example", EmailVerified: true, Phone: "+1"}},
		{"mapped names", IdentityProvider{Claims: map[string]string{"email": "mail", "fhirUser": "fhir"}}, map[string]any{
			"mail": "ada@x.example", "email": "wrong", "fhir": "Practitioner/1",
		}, User{Email: "ada@x.example", FHIRUser: "Practitioner/1"}},
		{"fhirUser that is not mapped", IdentityProvider{}, map[string]any{"fhirUser": "Practitioner/1"}, User{}},
		{`email_verified "true"`, IdentityProvider{}, map[string]any{"email": "a@x.example", "email_verified": "true"}, User{Email: "a@x.example"}},
		{"email_verified 1", IdentityProvider{}, map[string]any{"email": "a@x.example", "email_verified": json.Number("1")}, User{Email: "a@x.example"}},
		{"email_verified without an address", IdentityProvider{}, map[string]any{"email_verified": true}, User{}},
		{"further claims", IdentityProvider{Claims: map[string]string{"nickname": "nick"}}, map[string]any{
			"nick": "ad", "updated_at": json.Number("1.7e9"), "phone_number_verified": true, "website": "javascript:x", "gender": strings.Repeat("x", 2000),
			"address": map[string]any{"locality": "London", "planet": "Earth"},
		}, User{Claims: map[string]string{"nickname": "ad", "updated_at": "1700000000", "phone_number_verified": "true", "address.locality": "London"}}},
		{"further claims of other types", IdentityProvider{}, map[string]any{
			"phone_number": "+1", "phone_number_verified": "true", "updated_at": "1700000000", "nickname": true, "birthdate": json.Number("1980"),
			"address": "London", "family_name": map[string]any{"family_name": "x"},
		}, User{Phone: "+1"}},
		{"an updated_at beyond all time", IdentityProvider{}, map[string]any{"updated_at": json.Number("1e300")}, User{}},
		{"a name without end", IdentityProvider{}, map[string]any{"name": strings.Repeat("x", 2000)}, User{}},
		{"email mapped, but not what verifies it", IdentityProvider{Claims: map[string]string{"email": "upn"}}, map[string]any{
			"upn": "alice@hospital.example", "email": "mallory@home.example", "email_verified": true,
		}, User{Email: "alice@hospital.example"}},
		{"email mapped to itself", IdentityProvider{Claims: map[string]string{"email": "email"}}, map[string]any{
			"email": "ada@x.example", "email_verified": true,
		}, User{Email: "ada@x.example", EmailVerified: true}},
		{"email mapped, and what verifies it", IdentityProvider{Claims: map[string]string{"email": "upn", "email_verified": "edov"}}, map[string]any{
			"upn": "ada@x.example", "edov": true, "email_verified": false,
		}, User{Email: "ada@x.example", EmailVerified: true}},
		{"phone_number mapped, but not what verifies it", IdentityProvider{Claims: map[string]string{"phone_number": "mobile"}}, map[string]any{
			"mobile": "+1", "phone_number_verified": true,
		}, User{Phone: "+1"}},
		{`trusted, email_verified "true"`, IdentityProvider{TrustEmail: true}, map[string]any{"email": "a@x.example", "email_verified": "true"}, User{Email: "a@x.example", EmailVerified: true}},
		{"trusted, email_verified missing", IdentityProvider{TrustEmail: true}, map[string]any{"email": "a@x.example"}, User{Email: "a@x.example", EmailVerified: true}},
		{"trusted, email_verified false", IdentityProvider{TrustEmail: true}, map[string]any{"email": "a@x.example", "email_verified": false}, User{Email: "a@x.example"}},
		{`trusted, email_verified "false"`, IdentityProvider{TrustEmail: true}, map[string]any{"email": "a@x.example", "email_verified": "false"}, User{Email: "a@x.example"}},
		{"trusted, email_verified 1", IdentityProvider{TrustEmail: true}, map[string]any{"email": "a@x.example", "email_verified": json.Number("1")}, User{Email: "a@x.example"}},
		{"trusted, email_verified a list", IdentityProvider{TrustEmail: true}, map[string]any{"email": "a@x.example", "email_verified": []any{true}}, User{Email: "a@x.example"}},
		{"fhirUser in a list", IdentityProvider{Claims: map[string]string{"fhirUser": "fhir"}}, map[string]any{"fhir": []any{"Practitioner/1"}}, User{FHIRUser: "Practitioner/1"}},
		{"several fhirUsers", IdentityProvider{Claims: map[string]string{"fhirUser": "fhir"}}, map[string]any{"fhir": []any{"Practitioner/1", "Practitioner/2"}}, User{}},
		{"email_verified of two @", IdentityProvider{}, map[string]any{"email": "a@b@x.example", "email_verified": true}, User{Email: "a@b@x.example"}},
		{"claims of other types", IdentityProvider{}, map[string]any{"name": json.Number("1"), "email": []any{"a@x.example"}, "phone_number": nil}, User{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := Provider{IdentityProvider: tt.p}
			p.Issuer = "https://i.example"
			got := p.Identity(&relyingparty.Identity{Issuer: "https://i.example", Subject: "s", Claims: tt.claims}).user
			tt.want.ID = accountID("https://i.example", "s")
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// Groups are a list or a single value under any claim name. Other values are marked as unread.
func TestGroups(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		claim any
		want  []string
	}{
		{"a list", []any{"a", "b"}, []string{"a", "b"}},
		{"a text", "clinic staff", []string{"clinic staff"}},
		{"a list of several forms", []any{"a", json.Number("1"), nil, true}, []string{"a", "1", "true"}},
		{"a list with others", []any{"a", map[string]any{"name": "b"}}, nil},
		{"missing", nil, nil},
		{"an object", map[string]any{"a": true}, nil},
		{"a number", json.Number("1"), []string{"1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := Provider{IdentityProvider: IdentityProvider{Claims: map[string]string{"groups": "https://hospital.example/groups"}}}
			from := &relyingparty.Identity{Claims: map[string]any{"https://hospital.example/groups": tt.claim, "groups": []any{"other"}}}
			got := p.Identity(from)
			if unread := slices.Contains(got.user.Unread, "groups"); !reflect.DeepEqual(got.groups, tt.want) || unread != (tt.want == nil && tt.claim != nil) {
				t.Errorf("%q, want %q; unread: %t", got.groups, tt.want, unread)
			}
		})
	}
}

func TestAccountID(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for _, key := range [][2]string{{"https://a.example", "1"}, {"https://a.example", "2"}, {"https://b.example", "1"}, {"https://a.example1", ""}} {
		ids[accountID(key[0], key[1])] = true
	}
	if len(ids) != 4 {
		t.Errorf("%d accounts for four pairs of issuer and subject", len(ids))
	}
}

func TestAllow(t *testing.T) {
	t.Parallel()
	hospital := AllowRule{"email", "*@hospital.example"}
	person := func(email string, verified bool, groups ...string) identity {
		return identity{user: User{Email: email, EmailVerified: verified}, groups: groups}
	}
	tests := []struct {
		name  string
		rules []AllowRule
		id    identity
		want  bool
	}{
		{"no rule", nil, person("", false), true},
		{"an address of the domain", []AllowRule{hospital}, person("a@hospital.example", true), true},
		{"in upper case", []AllowRule{hospital}, person("A@Hospital.Example", true), true},
		{"not verified", []AllowRule{hospital}, person("a@hospital.example", false), false},
		{"another domain", []AllowRule{hospital}, person("a@evil.example", true), false},
		{"a domain that ends like it", []AllowRule{hospital}, person("a@evilhospital.example", true), false},
		{"a domain below it", []AllowRule{hospital}, person("a@x.hospital.example", true), false},
		{"two @", []AllowRule{hospital}, person("a@evil.example@hospital.example", true), false},
		{"two @, the domain first", []AllowRule{hospital}, person("a@hospital.example@evil.example", true), false},
		{"empty local part", []AllowRule{hospital}, person("@hospital.example", true), false},
		{"one address", []AllowRule{{"email", "a@x.example"}}, person("A@x.example", true), true},
		{"an address with letters that Unicode takes for the same", []AllowRule{{"email", "smith@x.example"}}, person("\u017fmith@x.example", true), false},
		{"a domain with such", []AllowRule{{"email", "*@desk.example"}}, person("a@des\u212a.example", true), false},
		{"another's address", []AllowRule{{"email", "a@x.example"}}, person("b@x.example", true), false},
		{"a domain that is it by Unicode's lower case", []AllowRule{hospital}, person("a@hosp\u0130tal.example", true), false},
		{"a domain that is it by Unicode's folding", []AllowRule{hospital}, person("a@ho\u017fpital.example", true), false},
		{"a mailbox that is it by Unicode's folding", []AllowRule{{"email", "kim@x.example"}}, person("\u212aim@x.example", true), false},
		{"a group", []AllowRule{{"group", "clinicians"}}, person("", false, "staff", "clinicians"), true},
		{"a group by another case", []AllowRule{{"group", "clinicians"}}, person("", false, "Clinicians"), false},
		{"one of several rules", []AllowRule{hospital, {"group", "clinicians"}}, person("", false, "clinicians"), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := Provider{IdentityProvider: IdentityProvider{Allow: tt.rules}}
			if got := p.allowsSignIn(tt.id); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("allows = %t", got)
			}
		})
	}
}

func TestAllowRuleCheck(t *testing.T) {
	t.Parallel()
	for rule, ok := range map[AllowRule]bool{
		{"email", "*@hospital.example"}: true, {"email", "a@x.example"}: true, {"group", "clinicians"}: true,
		{"email", "hospital.example"}: false, {"email", "*"}: false, {"email", "a*@x.example"}: false, {"email", "*@*.example"}: false,
		{"email", "*@"}: false, {"email", "a@b@c"}: false, {"group", ""}: false, {"name", "x"}: false,
	} {
		if err := rule.Check(); (err == nil) != ok {
			t.Errorf("%v: %v", rule, err)
		}
	}
}

func TestProviderKey(t *testing.T) {
	t.Parallel()
	for key, ok := range map[string]bool{"hospital": true, "entra-id2": true, "local": false, "Hospital": false, "a/b": false, "-a": false, "": false, "a--b": false} {
		if err := CheckProviderKey(key); (err == nil) != ok {
			t.Errorf("%q: %v", key, err)
		}
	}
}
