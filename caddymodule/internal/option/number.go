package option

import (
	"fmt"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
)

// Duration reads a positive duration.
func Duration(to *caddy.Duration) Setter { return checked(ParseDuration(to)) }

// ParseDuration parses a positive duration.
func ParseDuration(to *caddy.Duration) func(string) error {
	return func(w string) error {
		parsed, err := caddy.ParseDuration(w)
		if *to = caddy.Duration(parsed); err != nil || parsed <= 0 {
			return fmt.Errorf("invalid duration %q: use a value such as 90s, 5m or 1d", w)
		}
		return nil
	}
}

// DurationOrOff reads a duration, or the word off as -1.
func DurationOrOff(to *caddy.Duration, otherwise Setter) Setter {
	return func(d *caddyfile.Dispenser) error {
		var off bool
		err := OrOff(&off, otherwise)(d)
		if off {
			*to = -1
		}
		return err
	}
}

// Number reads a positive integer.
func Number(to *int) Setter { return checked(ParseNumber(to)) }

// ParseNumber parses a positive integer.
func ParseNumber(to *int) func(string) error {
	return func(w string) (err error) {
		if *to, err = strconv.Atoi(w); err != nil || *to <= 0 {
			return fmt.Errorf("%q is not a positive integer", w)
		}
		return nil
	}
}

// NumberOrNone reads an integer that may be zero.
func NumberOrNone(to *int) Setter {
	return checked(func(w string) (err error) {
		if *to, err = strconv.Atoi(w); err != nil || *to < 0 {
			return fmt.Errorf("%q is neither 0 nor a positive integer", w)
		}
		return nil
	})
}

// Size reads a number of bytes.
func Size(to *int64) Setter {
	return checked(func(w string) error {
		parsed, err := humanize.ParseBytes(w)
		if *to = int64(parsed); err != nil || *to <= 0 {
			return fmt.Errorf("invalid size %q: use a value such as 64KiB or 16MB", w)
		}
		return nil
	})
}
