package relyingparty_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

func TestClaims(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t, func(s *providertest.Settings) {
		s.IDToken = providertest.EmailVerifiedString
		s.UserInfoResponse = func(claims map[string]any) {
			claims["name"] = "Somebody Else"
			claims["email_verified"] = true
			claims["phone_number"] = "+15550100"
			claims["employee"] = json.Number("12345678901234567890")
		}
	})
	identity, err := signIn(t, newProvider(t, idp, nil), idp, newRequest())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"sub":            providertest.Alice.Subject,
		"name":           "Alice Adams", // the ID token's
		"email_verified": "true",        // a string, and no true
		"phone_number":   "+15550100",   // userinfo's
		"employee":       json.Number("12345678901234567890"),
		"groups":         []any{"clinicians"},
	} {
		if got := identity.Claims[name]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %#v, want %#v", name, got, want)
		}
	}
}

// What userinfo has verified is its own address, and not another one of the ID
// token's (OpenID Connect Core §5.1: "the End-User's e-mail address").
func TestVerifiedByUserInfo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		email any // userinfo's; nil: none
		want  any
	}{
		"the same address": {"alice@hospital.example", true},
		"another address":  {"mallory@home.example", nil},
		"no address":       {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			idp := providertest.Start(t, func(s *providertest.Settings) {
				s.IDToken = func(token *providertest.IDToken) { delete(token.Claims, "email_verified") }
				s.UserInfoResponse = func(claims map[string]any) { claims["email"] = tt.email }
			})
			identity, err := signIn(t, newProvider(t, idp, nil), idp, newRequest())
			if err != nil {
				t.Fatal(err)
			}
			if got := identity.Claims["email_verified"]; got != tt.want || identity.Claims["email"] != "alice@hospital.example" {
				t.Errorf("email_verified %v, of %v", got, identity.Claims["email"])
			}
		})
	}
	t.Run("address and its email_verified are userinfo's", func(t *testing.T) {
		idp := providertest.Start(t, func(s *providertest.Settings) {
			s.IDToken = func(token *providertest.IDToken) {
				delete(token.Claims, "email")
				delete(token.Claims, "email_verified")
			}
		})
		identity, err := signIn(t, newProvider(t, idp, nil), idp, newRequest())
		if err != nil || identity.Claims["email_verified"] != true {
			t.Error(identity, err)
		}
	})
}

func TestUserInfoRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]func(map[string]any){
		"another sub":  func(c map[string]any) { c["sub"] = "another" },
		"no sub":       func(c map[string]any) { delete(c, "sub") },
		"sub a number": func(c map[string]any) { c["sub"] = int64(248289761001) },
		"other case":   func(c map[string]any) { c["Sub"] = c["sub"]; c["sub"] = "another" },
	}
	for name, change := range tests {
		refused(t, name, relyingparty.ErrUserInfo, func(s *providertest.Settings) { s.UserInfoResponse = change })
	}
	t.Run("sub twice", func(t *testing.T) {
		idp := providertest.Start(t)
		idp.Fail(providertest.UserInfo, providertest.JSON(200, []byte(`{"sub":"another","sub":"`+providertest.Alice.Subject+`"}`)))
		checkFault(t, failedSignIn(t, idp, 0), "", relyingparty.ErrUserInfo)
	})
}

func TestWithoutUserInfo(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t, func(s *providertest.Settings) { s.Metadata["userinfo_endpoint"] = nil })
	identity, err := signIn(t, newProvider(t, idp, nil), idp, newRequest())
	if err != nil || identity.Claims["name"] != "Alice Adams" || count(idp, providertest.UserInfo) != 0 {
		t.Error(identity, err)
	}
}

// A userinfo response may be signed, if the client was registered so.
func TestSignedUserInfo(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t)
	good := map[string]any{"iss": idp.Issuer, "aud": []string{"client"}, "sub": providertest.Alice.Subject, "phone_number": "+15550100"}
	tests := []struct {
		name   string
		change func(*providertest.IDToken)
		ok     bool
	}{
		{"right", func(*providertest.IDToken) {}, true},
		{"without iss and aud", func(t *providertest.IDToken) { claim("iss", nil)(t); claim("aud", nil)(t) }, true},
		{"another issuer", providertest.WrongIssuer, false},
		{"another audience", providertest.WrongAudience, false},
		{"another key", providertest.ForeignKey, false},
		{"unknown key", providertest.UnknownKey, false},
		{"not signed", providertest.AlgorithmNone, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			idp.Fail(providertest.UserInfo, providertest.SignedJSON(good, tt.change))
			identity, err := signIn(t, newProvider(t, idp, nil), idp, newRequest())
			if !tt.ok {
				checkFault(t, err, "", relyingparty.ErrUserInfo)
			} else if err != nil || identity.Claims["phone_number"] != "+15550100" {
				t.Error(identity, err)
			}
		})
	}
}

// tokenRecorder keeps the token response.
type tokenRecorder struct {
	http.RoundTripper
	tokens struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
	}
}

func (tr *tokenRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := tr.RoundTripper.RoundTrip(r)
	if err != nil || r.Method != http.MethodPost {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, errors.Join(err, json.Unmarshal(body, &tr.tokens))
}

// An identity keeps nothing of the provider's tokens but the refresh token, in its place alone.
func TestTokensHidden(t *testing.T) {
	t.Parallel()
	idp := providertest.Start(t)
	transport := idp.Transport()
	t.Cleanup(transport.CloseIdleConnections)
	recorder := &tokenRecorder{RoundTripper: transport}
	p := newProvider(t, idp, func(c *relyingparty.Config) { c.Transport = recorder })
	identity, err := signIn(t, p, idp, newRequest())
	if err != nil {
		t.Fatal(err)
	}
	if identity.RefreshToken != recorder.tokens.Refresh {
		t.Error("another refresh token")
	}
	identity.RefreshToken = ""
	marshalled, err := json.Marshal(identity)
	if err != nil || recorder.tokens.Access == "" || recorder.tokens.Refresh == "" {
		t.Fatal("no tokens", err)
	}
	text := fmt.Sprintf("%#v", *identity) + string(marshalled)
	if strings.Contains(text, recorder.tokens.Access) || strings.Contains(text, recorder.tokens.Refresh) {
		t.Errorf("shows a token: %s", text)
	}
}
