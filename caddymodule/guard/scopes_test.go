package guard

import (
	"reflect"
	"testing"

	"github.com/go-jose/go-jose/v4/json"
)

func TestScopes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, in, want string
		fails          bool
	}{
		{"text", `"openid patient/*.rs"`, "openid patient/*.rs", false},
		{"one", `"openid"`, "openid", false},
		{"empty text", `""`, "", false},
		{"spaces", `"  openid   email "`, "openid email", false},
		{"list", `["openid","patient/*.rs"]`, "openid patient/*.rs", false},
		{"empty list", `[]`, "", false},
		{"null", `null`, "", false},
		{"a space in a list", `["openid system/*.rs"]`, "", true},
		{"an empty one in a list", `["openid",""]`, "", true},
		{"line break", `"openid\nemail"`, "", true},
		{"tab", `"openid\temail"`, "", true},
		{"quote", `"open\"id"`, "", true},
		{"backslash", `"open\\id"`, "", true},
		{"not ASCII", `"openıd"`, "", true},
		{"no-break space", `"openid\u00a0email"`, "", true},
		{"number", `1`, "", true},
		{"list of numbers", `[1]`, "", true},
		{"object", `{"openid":true}`, "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var claims struct {
				Scope scopes `json:"scope"`
			}
			err := json.Unmarshal([]byte(`{"scope":`+test.in+`}`), &claims)
			if (err != nil) != test.fails || string(claims.Scope) != test.want {
				t.Errorf("got %q, %v", claims.Scope, err)
			}
		})
	}
}

func FuzzTrustedClaims(f *testing.F) {
	for _, p := range providers {
		f.Add(p.payload(f, p.access, nil))
		f.Add(p.payload(f, p.id, nil))
	}
	f.Add([]byte(`{"iss":null,"aud":null,"scope":null,"cnf":null}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, p := range providers {
			v := p.trusted()
			token, err := v.checkClaims(joseHeader{}, payload)
			if err != nil {
				if !reflect.DeepEqual(token, Token{}) {
					t.Fatalf("a token is returned with %v", err)
				}
				continue
			}
			if token.Issuer != v.Issuer || token.Subject == "" || token.ClientID == "" {
				t.Fatalf("%s passes as %+v", payload, token)
			}
			if !testTime.Before(token.Expires.Add(defaultLeeway)) {
				t.Fatalf("%s passes after %v", payload, token.Expires)
			}
			for _, c := range token.Scope {
				if c < ' ' || c > '~' {
					t.Fatalf("%s has scope %q", payload, token.Scope)
				}
			}
		}
	})
}
