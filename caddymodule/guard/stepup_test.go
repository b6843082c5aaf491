package guard

import (
	"errors"
	"testing"
	"time"
)

// TestStepUp is over what is asked and what the token says. What it does not say is not so.
func TestStepUp(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) time.Time { return testTime.Add(-d) }
	gold, hour := StepUp{ACR: []string{"gold", "silver"}}, StepUp{MaxAge: time.Hour}
	both := StepUp{ACR: gold.ACR, MaxAge: time.Hour}
	better := StepUp{ACR: []string{"silver"}, Meets: func(t *Token, wanted string) bool { return t.ACR == "platinum" && wanted == "silver" }}
	for _, tt := range []struct {
		name      string
		asked     StepUp
		token     Token
		challenge string // beside the description
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
			err := tt.asked.Check(&tt.token, testTime)
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

// TestSignInClaims: what issuers write in other forms is as good as missing, and no reason to refuse the token.
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
