package caddymodule

import (
	"fmt"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
)

// duration reads a positive duration.
func duration(to *caddy.Duration) setter { return checked(parseDuration(to)) }

func parseDuration(to *caddy.Duration) func(string) error {
	return func(w string) error {
		parsed, err := caddy.ParseDuration(w)
		if *to = caddy.Duration(parsed); err != nil || parsed <= 0 {
			return fmt.Errorf("invalid duration %q: use a value such as 90s, 5m or 1d", w)
		}
		return nil
	}
}

// durationOrOff reads a duration, or the word off as -1.
func durationOrOff(to *caddy.Duration, otherwise setter) setter {
	return func(d *caddyfile.Dispenser) error {
		var off bool
		err := orOff(&off, otherwise)(d)
		if off {
			*to = -1
		}
		return err
	}
}

// number reads a positive integer.
func number(to *int) setter { return checked(parseNumber(to)) }

func parseNumber(to *int) func(string) error {
	return func(w string) (err error) {
		if *to, err = strconv.Atoi(w); err != nil || *to <= 0 {
			return fmt.Errorf("%q is not a positive integer", w)
		}
		return nil
	}
}

// numberOrNone reads an integer that may be zero.
func numberOrNone(to *int) setter {
	return checked(func(w string) (err error) {
		if *to, err = strconv.Atoi(w); err != nil || *to < 0 {
			return fmt.Errorf("%q is neither 0 nor a positive integer", w)
		}
		return nil
	})
}

// size reads a number of bytes.
func size(to *int64) setter {
	return checked(func(w string) error {
		parsed, err := humanize.ParseBytes(w)
		if *to = int64(parsed); err != nil || *to <= 0 {
			return fmt.Errorf("invalid size %q: use a value such as 64KiB or 16MB", w)
		}
		return nil
	})
}
