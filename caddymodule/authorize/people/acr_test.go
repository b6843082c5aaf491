package people_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

// The mapped amr contains mfa if and only if the provider reports two factors.
func TestAMROfProvider(t *testing.T) {
	t.Parallel()
	loa := map[string]string{"1": "sfa", "2": "mfa", "gold": "mfa", "c1": "mfa"}
	for name, tt := range map[string]struct {
		acr    any
		amr    string
		mapped map[string]string
		claim  string
		want   string
	}{
		"nothing":                       {nil, "", nil, "", ""},
		"a password":                    {nil, "pwd", nil, "", "pwd"},
		"mfa according to the provider": {nil, "mfa", nil, "", "mfa"},
		"amr values of Microsoft":       {nil, "pwd ngcmfa", nil, "", "pwd ngcmfa mfa"},
		"password and code":             {nil, "pwd otp", nil, "", "pwd otp mfa"},
		"password and text message":     {nil, "pwd sms", nil, "", "pwd sms mfa"},
		"password and call":             {nil, "tel pwd", nil, "", "tel pwd mfa"},
		"password and key":              {nil, "pwd hwk", nil, "", "pwd hwk mfa"},
		"smart card and PIN":            {nil, "sc pin", nil, "", "sc pin mfa"},
		"key and fingerprint":           {nil, "swk fpt", nil, "", "swk fpt mfa"},
		"two knowledge factors":         {nil, "pwd kba pin", nil, "", "pwd kba pin"},
		"two possession factors":        {nil, "otp sms hwk", nil, "", "otp sms hwk"},
		"a key and a touch":             {nil, "hwk user", nil, "", "hwk user"},
		"password and location":         {nil, "pwd geo rba wia", nil, "", "pwd geo rba wia"},
		"unknown methods":               {nil, "PWD OTP", nil, "", "PWD OTP"},
		"a level as a text":             {"2", "pwd", loa, "", "pwd mfa"},
		"a level as a number":           {json.Number("2"), "", loa, "", "mfa"},
		"a name":                        {"gold", "", loa, "", "mfa"},
		"unmapped level":                {"3", "pwd", loa, "", "pwd"},
		"unmapped level with amr":       {"3", "pwd otp", loa, "", "pwd otp mfa"},
		"a level of one factor wins":    {"1", "pwd otp mfa", loa, "", "pwd otp"},
		"an acr that is not mapped":     {"2", "pwd", nil, "", "pwd"},
		"local value, not mapped":       {"mfa", "", nil, "", ""},
		"a claim of the provider's own": {[]any{"c9", "c1", "1"}, "pwd", loa, "acrs", "pwd mfa"},
		"neither text nor number":       {map[string]any{"2": "2"}, "pwd", loa, "", "pwd"},
	} {
		claims := map[string]any{"amr": []any{}}
		for method := range strings.FieldsSeq(tt.amr) {
			claims["amr"] = append(claims["amr"].([]any), method)
		}
		claims[cmp.Or(tt.claim, "acr")] = tt.acr
		if got := people.ACRMap(tt.mapped).AMR(claims, tt.claim); !slices.Equal(got, strings.Fields(tt.want)) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
