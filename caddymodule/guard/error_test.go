package guard

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

func TestError(t *testing.T) {
	t.Parallel()
	cause := fmt.Errorf("%w: %q", ErrUnknownKey, `evil" kid`)
	for _, test := range []struct {
		name      string
		err       *Error
		challenge string
		issue     string
	}{
		{"no token", missingToken(ErrNoToken), `Bearer realm="https://a.example/fhir"`, "login"},
		{
			"bad request", badRequest("Send it once.", errInvalidRequest),
			`Bearer realm="https://a.example/fhir", error="invalid_request", error_description="Send it once."`, "security",
		},
		{
			"invalid token, without a word of the input", invalidToken(cause),
			`Bearer realm="https://a.example/fhir", error="invalid_token", error_description="The access token is invalid."`, "login",
		},
		{
			"expired token", invalidToken(ErrExpired),
			`Bearer realm="https://a.example/fhir", error="invalid_token", error_description="The access token has expired."`, "expired",
		},
		{"another format", &Error{Status: 406, Description: "Ask for JSON.", Err: cause}, "", "not-supported"},
		{"a body of another type", &Error{Status: 415, Description: "Send JSON.", Err: cause}, "", "not-supported"},
		{"unavailable", verificationUnavailable(fmt.Errorf("%w: disk", ErrUnavailable)), "", "transient"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.err.Challenge("https://a.example/fhir"); got != test.challenge {
				t.Errorf("challenge is %s, want %s", got, test.challenge)
			}
			if got := test.err.IssueType(); got != test.issue {
				t.Errorf("issue type is %s, want %s", got, test.issue)
			}
			if !errors.Is(test.err, test.err.Err) || test.err.Error() != test.err.Err.Error() {
				t.Errorf("error is %v, want its cause %v", test.err, test.err.Err)
			}
		})
	}
}

// All invalid tokens get the same error, so that it reveals nothing to a forger.
func TestErrorRevealsNothing(t *testing.T) {
	t.Parallel()
	want := invalidToken(ErrInvalidSignature)
	for _, cause := range []error{
		errMalformedToken, errTokenType, errAlgorithm, errHeaderParameter, ErrUnknownKey, errUnexpectedIssuer, errUnexpectedAudience,
		errNotYetValid, errInvalidIssuedAt, errMissingClaim, errRevokedToken,
	} {
		got := invalidToken(cause)
		if got.Challenge("r") != want.Challenge("r") || got.IssueType() != want.IssueType() || got.Status != want.Status {
			t.Errorf("%v is answered with %q, %s, %d", cause, got.Challenge("r"), got.IssueType(), got.Status)
		}
	}
}

func TestQuoted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, in, want string }{
		{"plain", "https://a.example/fhir", `"https://a.example/fhir"`},
		{"quotation mark", `a"b`, `"ab"`},
		{"backslash", `a\`, `"a"`},
		{"line break", "a\r\nSet-Cookie: b", `"aSet-Cookie: b"`},
		{"not ASCII", "aäb\xff", `"ab"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := quotedString(test.in); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestErrorWithoutCause(t *testing.T) {
	t.Parallel()
	if got := (&Error{Description: "Why."}).Error(); got != "Why." {
		t.Errorf("error is %q", got)
	}
}

// The client gets the name of the invalid claim but not its value; the log gets both.
func TestClaimError(t *testing.T) {
	t.Parallel()
	keycloak := providerNamed(t, "Keycloak")
	verify := func(claims, changes map[string]any) error {
		_, err := keycloak.trusted().Verify(t.Context(), keycloak.token(t, claims, changes))
		return err
	}
	for _, tt := range []struct {
		name, claim, found, description string
		err                             error
	}{
		{"wrong aud", "aud", "account", "The access token's aud is not accepted here.", verify(keycloak.access, map[string]any{"aud": "account"})},
		{"no aud", "aud", "", "The access token lacks aud.", verify(keycloak.access, map[string]any{"aud": nil})},
		{"lightweight", "sub", "", "The access token lacks sub.", verify(keycloak.access, map[string]any{"sub": nil})},
		{"another issuer", "iss", "https://other.example", "The access token's iss is not accepted here.", verify(keycloak.access, map[string]any{"iss": "https://other.example"})},
		{"ID token", "typ", "ID", "The access token's typ is not accepted here.", verify(keycloak.id, nil)},
		{"a reference to a patient", "patient", "Patient/p01", "The access token's patient is not accepted here.", verify(keycloak.access, map[string]any{"patient": "Patient/p01"})},
		{"a long aud", "aud", strings.Repeat("x", 200), "The access token's aud is not accepted here.", verify(keycloak.access, map[string]any{"aud": strings.Repeat("x", 5000)})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			claim, ok := errors.AsType[*ClaimError](tt.err)
			refused, _ := errors.AsType[*Error](tt.err)
			if !ok || claim.Claim != tt.claim || claim.Found != tt.found || claim.Expected == "" || refused.Description != tt.description {
				t.Errorf("%v, description %+v", tt.err, refused)
			}
		})
	}
	g := testGuard(t)
	_, err := g.Verify(t.Context(), keycloak.token(t, keycloak.access, map[string]any{"iss": "https://other.example"}))
	if claim, ok := errors.AsType[*ClaimError](err); !ok || claim.Claim != "iss" || !strings.Contains(claim.Expected, keycloak.issuer) {
		t.Errorf("several issuers: %v", err)
	}
}

// The error for a token without a verified signature does not reveal how far verification got.
func TestForgedClaims(t *testing.T) {
	t.Parallel()
	keycloak := providerNamed(t, "Keycloak")
	forged := mint{header: map[jose.HeaderKey]any{"kid": "rs"}}.sign(t, keycloak.payload(t, keycloak.access, map[string]any{"aud": "account"}))
	_, err := keycloak.trusted().Verify(t.Context(), forged)
	if refused, ok := errors.AsType[*Error](err); !ok || refused.Description != "The access token is invalid." {
		t.Errorf("%v", err)
	}
}

// A token with an unknown kid is rejected with 401 if it is older than the last fetch of the keys, and with 503 if it is newer.
func TestUnknownKeyOfOldToken(t *testing.T) {
	t.Parallel()
	keycloak := providerNamed(t, "Keycloak")
	verifier := keycloak.trusted()
	verifier.Keys = &keySet{err: &WaitError{Wait: 3 * time.Second, Reason: "unknown"}}
	if _, err := verifier.Verify(t.Context(), keycloak.token(t, keycloak.access, map[string]any{"iat": nil})); !errors.As(err, new(*WaitError)) {
		t.Errorf("without iat: %v", err)
	}
	for age, want := range map[time.Duration]int{0: http.StatusServiceUnavailable, 30 * time.Second: http.StatusServiceUnavailable, time.Minute: http.StatusUnauthorized} {
		_, err := verifier.Verify(t.Context(), keycloak.token(t, keycloak.access, map[string]any{"iat": testTime.Add(-age).Unix()}))
		if refused, ok := errors.AsType[*Error](err); !ok || refused.Status != want || want == http.StatusServiceUnavailable && refused.RetryAfter() != "3" {
			t.Errorf("%v: %v", age, err)
		}
	}
}

// The acr and auth_time of a token must meet the requirements. A missing claim does not meet them.
func TestStepUp(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) time.Time { return testTime.Add(-d) }
	gold, hour := StepUp{ACR: []string{"gold", "silver"}}, StepUp{MaxAge: time.Hour}
	both := StepUp{ACR: gold.ACR, MaxAge: time.Hour}
	better := StepUp{ACR: []string{"silver"}, SatisfiesACR: func(t *Token, wanted string) bool { return t.ACR == "platinum" && wanted == "silver" }}
	for _, tt := range []struct {
		name      string
		required  StepUp
		token     Token
		challenge string // challenge parameters in addition to the description
	}{
		{"nothing", StepUp{}, Token{}, ""},
		{"the class", gold, Token{ACR: "silver"}, ""},
		{"another class", gold, Token{ACR: "bronze"}, `, acr_values="gold silver"`},
		{"no class", gold, Token{}, `, acr_values="gold silver"`},
		{"a class of nothing", StepUp{ACR: []string{""}}, Token{}, `, acr_values=""`},
		{"a higher class", better, Token{ACR: "platinum"}, ""},
		{"none, where a higher one would do", better, Token{}, `, acr_values="silver"`},
		{"in time", hour, Token{AuthTime: ago(time.Hour)}, ""},
		{"too long ago", hour, Token{AuthTime: ago(time.Hour + time.Second)}, `, max_age="3600"`},
		{"no time", hour, Token{}, `, max_age="3600"`},
		{"a clock that is a little fast", hour, Token{AuthTime: ago(-defaultLeeway)}, ""},
		{"in the future", hour, Token{AuthTime: ago(-defaultLeeway - time.Second)}, `, max_age="3600"`},
		{"one of two", both, Token{ACR: "gold"}, `, acr_values="gold silver", max_age="3600"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.required.Check(&tt.token, testTime)
			refusal, _ := errors.AsType[*Error](err)
			if tt.challenge == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if refusal == nil || refusal.Status != 401 || !errors.Is(err, ErrStepUp) {
				t.Fatalf("got %v", err)
			}
			want := `Bearer realm="r", error="insufficient_user_authentication", error_description="` + refusal.Description + `"` + tt.challenge
			if got := refusal.Challenge("r"); got != want {
				t.Errorf("challenge is %s, want %s", got, want)
			}
		})
	}
}

// A sign-in claim of an unexpected type is treated as missing. The token is still valid.
func TestSignInClaims(t *testing.T) {
	t.Parallel()
	p := providerNamed(t, "Keycloak")
	for _, tt := range []struct {
		name      string
		acr, time any
		wantACR   string
		wantTime  time.Time
	}{
		{"both", "gold", testTime.Unix(), "gold", testTime},
		{"other types", 1, "yesterday", "", time.Time{}},
		{"lists", []string{"gold"}, []int{1}, "", time.Time{}},
		{"null", nil, nil, "", time.Time{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := p.trusted().Verify(t.Context(), p.token(t, p.access, map[string]any{"acr": tt.acr, "auth_time": tt.time}))
			if err != nil || got.ACR != tt.wantACR || !got.AuthTime.Equal(tt.wantTime) {
				t.Errorf("%q, %v, %v", got.ACR, got.AuthTime, err)
			}
		})
	}
}
