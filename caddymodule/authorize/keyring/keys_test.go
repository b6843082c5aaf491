package keyring

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// memoryKeys is a [Storage] for one file in memory.
type memoryKeys struct{ file []byte }

func (*memoryKeys) Lock(context.Context, string) error   { return nil }
func (*memoryKeys) Unlock(context.Context, string) error { return nil }

func (m *memoryKeys) Load(context.Context, string) ([]byte, error) {
	if m.file == nil {
		return nil, fs.ErrNotExist
	}
	return m.file, nil
}

func (m *memoryKeys) Store(_ context.Context, _ string, value []byte) error {
	m.file = value
	return nil
}

// A sealed text can be unsealed from the time of sealing, with a tolerance for clock skew, but not earlier. Otherwise, texts
// sealed by a clock that is ahead would be valid for longer than maxAge.
func TestSealValidity(t *testing.T) {
	t.Parallel()
	keys := new(memoryKeys) // the keys are generated only once
	ring := func() *Keyring { return New(LockingStorage{keys}, "keys.json", slog.New(slog.DiscardHandler)) }
	for name, tt := range map[string]struct {
		ahead, wait time.Duration // how far the sealing clock is ahead; delay until unsealing
		opens       bool
	}{
		"at once":                    {0, 0, true},
		"just in time":               {0, time.Hour, true},
		"too late":                   {0, time.Hour + time.Second, false},
		"by a clock a bit ahead":     {time.Minute, 0, true},
		"by a clock far ahead":       {61 * time.Second, 0, false},
		"by a clock a day ahead":     {24 * time.Hour, time.Hour, false},
		"when the time has come":     {24 * time.Hour, 24 * time.Hour, true},
		"an hour after and a second": {24 * time.Hour, 25*time.Hour + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			var sealed string
			synctest.Test(t, func(t *testing.T) { // each bubble starts at the same time
				if _, err := ring().Seal(t.Context(), "", ""); err != nil {
					t.Fatal(err)
				}
				time.Sleep(tt.ahead)
				var err error
				if sealed, err = ring().Seal(t.Context(), "text", "browser"); err != nil {
					t.Fatal(err)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(tt.wait)
				text, err := ring().Unseal(t.Context(), sealed, "browser", time.Hour)
				if opens := err == nil && text == "text"; opens != tt.opens || err != nil && !errors.Is(err, ErrUnsealFailed) {
					t.Errorf("%q, %v", text, err)
				}
			})
		})
	}
}
