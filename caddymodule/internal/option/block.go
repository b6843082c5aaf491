package option

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Setter reads the arguments of a subdirective.
type Setter func(d *caddyfile.Dispenser) error

// Block are the subdirectives of a block, by name.
type Block map[string]Setter

// ParseDirective reads a directive without arguments, and its block.
func ParseDirective(d *caddyfile.Dispenser, fields Block, repeatable ...string) error {
	d.Next() // consume directive name
	if d.NextArg() {
		return d.ArgErr()
	}
	return fields.Parse(d, repeatable...)
}

// Parse reads a block. An unknown name is an error, and so is a duplicate that is not repeatable: to ignore either would
// silently disable what it was meant to set.
func (s Block) Parse(d *caddyfile.Dispenser, repeatable ...string) error {
	seen := map[string]bool{}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		set, known := s[name]
		switch {
		case !known:
			return d.Errf("unrecognized subdirective: %s%s", name, didYouMeanKey(name, s))
		case seen[name] && !slices.Contains(repeatable, name):
			return d.Errf("duplicate %s", name)
		}
		seen[name] = true
		if err := set(d); err != nil {
			return err
		}
	}
	return nil
}

// Word reads one argument and checks it. A nil check accepts any word.
func Word(to *string, check func(string) error) Setter {
	return func(d *caddyfile.Dispenser) error {
		args, err := arguments(d)
		switch {
		case err != nil:
			return err
		case len(args) > 1:
			return d.ArgErr()
		}
		*to = args[0]
		return checkEach(d, check, args)
	}
}

// Words reads one or more arguments and checks each. A nil check accepts any word.
func Words(to *[]string, check func(string) error) Setter {
	return func(d *caddyfile.Dispenser) (err error) {
		if *to, err = arguments(d); err != nil {
			return err
		}
		return checkEach(d, check, *to)
	}
}

// arguments reads one or more arguments. Caddy substitutes variables before it parses: an unset one leaves no argument,
// so the error mentions the possibility.
func arguments(d *caddyfile.Dispenser) ([]string, error) {
	name := d.Val()
	args := d.RemainingArgs()
	if len(args) == 0 || len(args) == 1 && args[0] == "" {
		return nil, d.Errf("%s has no value; a {$VARIABLE} that is unset or empty leaves none", name)
	}
	return args, nil
}

func checkEach(d *caddyfile.Dispenser, check func(string) error, args []string) error {
	for _, arg := range args {
		if check == nil {
			break
		}
		if err := check(arg); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

// WithLine adds the line to an error, or returns nil.
func WithLine(d *caddyfile.Dispenser, err error) error {
	if err == nil {
		return nil
	}
	return d.WrapErr(err)
}

// checked reads one argument that the check itself stores.
func checked(check func(string) error) Setter { return Word(new(string), check) }

// OneOrTwo reads one or two arguments. The second is empty if there is only one.
func OneOrTwo(d *caddyfile.Dispenser) (first, second string, err error) {
	args := d.RemainingArgs()
	if len(args) == 0 || len(args) > 2 {
		return "", "", d.ArgErr()
	}
	return args[0], strings.Join(args[1:], ""), nil
}

// UpToTwo reads one or two arguments that the checks themselves store.
func UpToTwo(checkFirst, checkSecond func(string) error) Setter {
	return func(d *caddyfile.Dispenser) error {
		first, second, err := OneOrTwo(d)
		if err != nil {
			return err
		}
		if err = checkFirst(first); err == nil && second != "" {
			err = checkSecond(second)
		}
		return WithLine(d, err)
	}
}

// Two reads two arguments.
func Two(first, second *string) Setter {
	return func(d *caddyfile.Dispenser) error {
		if !d.Args(first, second) || d.NextArg() {
			return d.ArgErr()
		}
		return nil
	}
}

// Pair reads a key and its value, and checks them.
func Pair(to *map[string]string, check func(key, value string) error) Setter {
	return func(d *caddyfile.Dispenser) error {
		var key, value string
		if err := Two(&key, &value)(d); err != nil {
			return err
		}
		if _, exists := (*to)[key]; exists {
			return d.Errf("duplicate %s", key)
		}
		if err := check(key, value); err != nil {
			return d.WrapErr(err)
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key] = value
		return nil
	}
}

// OneOf returns a check that a word is one of the known ones.
func OneOf(known ...string) func(string) error {
	return func(w string) error {
		switch {
		case slices.Contains(known, w):
			return nil
		case len(known) == 1:
			return fmt.Errorf("%q is not valid here; the only value is %s", w, known[0])
		}
		return fmt.Errorf("%q is not one of %s%s", w, strings.Join(known, ", "), DidYouMean(w, known))
	}
}

// Bareword reads a subdirective that is switched on by its name alone.
func Bareword(to *bool) Setter {
	return func(d *caddyfile.Dispenser) error {
		if *to = true; d.NextArg() {
			return d.ArgErr()
		}
		return nil
	}
}

// Only reads a switch with a single possible value, such as `core off`.
func Only(value string, to *bool) Setter {
	return func(d *caddyfile.Dispenser) error {
		*to = true
		return checked(OneOf(value))(d)
	}
}

// OrOff reads the word off, or leaves the arguments to another setter.
func OrOff(off *bool, otherwise Setter) Setter {
	return func(d *caddyfile.Dispenser) error {
		if *off = d.CountRemainingArgs() == 1 && nextIs(d, "off"); *off {
			d.NextArg()
			return nil
		}
		return otherwise(d)
	}
}

func nextIs(d *caddyfile.Dispenser, w string) bool {
	is := d.NextArg() && d.Val() == w
	d.Prev()
	return is
}
