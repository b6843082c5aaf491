package oauth2

import (
	"fmt"
	"strings"
	"time"
)

// CheckLifetime refuses a configured lifetime of less than a second or more than most.
func CheckLifetime(name string, lifetime, most time.Duration) error {
	if lifetime < time.Second || lifetime > most {
		return fmt.Errorf("%s %s is out of bounds: at least 1s, at most %s", name, formatDuration(lifetime), formatDuration(most))
	}
	return nil
}

// formatDuration writes a duration as a configuration does: 30d, 24h, 10m.
func formatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d > day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}
