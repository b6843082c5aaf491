package guard

import (
	"errors"
	"fmt"
	"testing"
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
		{"no token", noToken(ErrNoToken), `Bearer realm="https://a.example/fhir"`, "login"},
		{
			"bad request", badRequest("Send it once.", errRequest),
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
		{"unavailable", unavailable(fmt.Errorf("%w: disk", ErrUnavailable)), "", "transient"},
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

// All defects of a token look alike, or a forger would learn from them.
func TestErrorTellsNothing(t *testing.T) {
	t.Parallel()
	want := invalidToken(ErrSignature)
	for _, cause := range []error{
		errMalformed, errType, errAlgorithm, errHeader, ErrUnknownKey, errIssuer, errAudience,
		errNotYetValid, errIssuedAt, errMissingClaim, errRevoked,
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
			if got := quoted(test.in); got != test.want {
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
