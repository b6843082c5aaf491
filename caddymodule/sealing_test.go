package caddymodule

import (
	"testing"
	"testing/synctest"
	"time"
)

// What a guard seals without the fhir app opens for whom it was sealed, in its time.
func TestProcessSealing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ahead, wait time.Duration // of the clock that sealed; until it is opened
		binding     string
		opens       bool
	}{
		"at once":                {0, 0, "alice", true},
		"by somebody else":       {0, 0, "mallory", false},
		"just in time":           {0, time.Hour, "alice", true},
		"too late":               {0, time.Hour + time.Second, "alice", false},
		"by a clock a bit ahead": {time.Minute, 0, "alice", true},
		"by a clock far ahead":   {time.Hour, 0, "alice", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sealed string
			synctest.Test(t, func(t *testing.T) { // each bubble's clock begins at the same time
				time.Sleep(tt.ahead)
				var err error
				if sealed, err = (processSealing{}).Seal(t.Context(), "text", "alice"); err != nil {
					t.Fatal(err)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(tt.wait)
				text, err := processSealing{}.Unseal(t.Context(), sealed, tt.binding, time.Hour)
				if opens := err == nil && text == "text"; opens != tt.opens {
					t.Errorf("%q, %v", text, err)
				}
			})
		})
	}
}
