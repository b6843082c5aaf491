package option

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/suggestion"
)

// Setter parses the arguments of a subdirective and stores the result.
type Setter func(d *caddyfile.Dispenser) error

// Block maps the names of a block's subdirectives to their setters.
type Block map[string]Setter

// ParseDirective parses a directive that has no arguments, and its block.
func ParseDirective(d *caddyfile.Dispenser, fields Block, repeatable ...string) error {
	d.Next() // the directive's name
	if d.NextArg() {
		return d.ArgErr()
	}
	return fields.Parse(d, repeatable...)
}

// Parse parses a block. Unknown names, and duplicates of names that are not repeatable, are errors, because ignoring them would
// silently disable an intended setting.
func (s Block) Parse(d *caddyfile.Dispenser, repeatable ...string) error {
	seen := map[string]bool{}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		set, exists := s[name]
		switch {
		case !exists:
			return d.Errf("unrecognized subdirective: %s%s", name, DidYouMean(name, slices.Collect(maps.Keys(s))))
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

// Word returns a setter that parses one argument and checks it unless check is nil.
func Word(to *string, check func(string) error) Setter {
	return func(d *caddyfile.Dispenser) error {
		args, err := parseArguments(d)
		switch {
		case err != nil:
			return err
		case len(args) > 1:
			return d.ArgErr()
		}
		*to = args[0]
		return checkAll(d, check, args)
	}
}

// Words returns a setter that parses one or more arguments and checks each unless check is nil.
func Words(to *[]string, check func(string) error) Setter {
	return func(d *caddyfile.Dispenser) (err error) {
		if *to, err = parseArguments(d); err != nil {
			return err
		}
		return checkAll(d, check, *to)
	}
}

// parseArguments parses one or more arguments. Caddy substitutes environment variables before it parses, and an unset variable
// leaves no argument. The error for a missing argument mentions this possibility.
func parseArguments(d *caddyfile.Dispenser) ([]string, error) {
	name := d.Val()
	args := d.RemainingArgs()
	if len(args) == 0 || len(args) == 1 && args[0] == "" {
		return nil, d.Errf("%s has no value; check that its {$VARIABLE} is set and not empty", name)
	}
	return args, nil
}

func checkAll(d *caddyfile.Dispenser, check func(string) error, args []string) error {
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

// WithLine adds the current line to an error. It returns nil if err is nil.
func WithLine(d *caddyfile.Dispenser, err error) error {
	if err == nil {
		return nil
	}
	return d.WrapErr(err)
}

// wordParser returns a setter that parses one argument, which check also stores.
func wordParser(check func(string) error) Setter { return Word(new(string), check) }

// ParseOneOrTwo parses one or two arguments. If there is only one, second is "".
func ParseOneOrTwo(d *caddyfile.Dispenser) (first, second string, err error) {
	args := d.RemainingArgs()
	if len(args) == 0 || len(args) > 2 {
		return "", "", d.ArgErr()
	}
	return args[0], strings.Join(args[1:], ""), nil
}

// OneOrTwoWords returns a setter that parses one or two arguments, which the checks also store.
func OneOrTwoWords(checkFirst, checkSecond func(string) error) Setter {
	return func(d *caddyfile.Dispenser) error {
		first, second, err := ParseOneOrTwo(d)
		if err != nil {
			return err
		}
		if err = checkFirst(first); err == nil && second != "" {
			err = checkSecond(second)
		}
		return WithLine(d, err)
	}
}

// TwoWords returns a setter that parses two arguments.
func TwoWords(first, second *string) Setter {
	return func(d *caddyfile.Dispenser) error {
		if !d.Args(first, second) || d.NextArg() {
			return d.ArgErr()
		}
		return nil
	}
}

// Pair returns a setter that parses a key and its value and checks them.
func Pair(to *map[string]string, check func(key, value string) error) Setter {
	return func(d *caddyfile.Dispenser) error {
		var key, value string
		if err := TwoWords(&key, &value)(d); err != nil {
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

// OneOf returns a check that a word is one of the allowed words.
func OneOf(allowed ...string) func(string) error {
	return func(w string) error {
		switch {
		case slices.Contains(allowed, w):
			return nil
		case len(allowed) == 1:
			return fmt.Errorf("invalid value %q: the only valid value is %s", w, allowed[0])
		}
		return fmt.Errorf("invalid value %q: use one of %s%s", w, strings.Join(allowed, ", "), DidYouMean(w, allowed))
	}
}

// Flag returns a setter for a subdirective without arguments that enables an option.
func Flag(to *bool) Setter {
	return func(d *caddyfile.Dispenser) error {
		if *to = true; d.NextArg() {
			return d.ArgErr()
		}
		return nil
	}
}

// SingleValue returns a setter for an option with a single possible value, such as `core off`.
func SingleValue(value string, to *bool) Setter {
	return func(d *caddyfile.Dispenser) error {
		*to = true
		return wordParser(OneOf(value))(d)
	}
}

// OrOff returns a setter that parses the word off and otherwise calls fallback.
func OrOff(off *bool, fallback Setter) Setter {
	return func(d *caddyfile.Dispenser) error {
		if *off = d.CountRemainingArgs() == 1 && isNextWord(d, "off"); *off {
			d.NextArg()
			return nil
		}
		return fallback(d)
	}
}

func isNextWord(d *caddyfile.Dispenser, w string) bool {
	is := d.NextArg() && d.Val() == w
	d.Prev()
	return is
}

// Duration returns a setter that parses a positive duration.
func Duration(to *caddy.Duration) Setter { return wordParser(ParseDuration(to)) }

// ParseDuration returns a function that parses a positive duration.
func ParseDuration(to *caddy.Duration) func(string) error {
	return func(w string) error {
		parsed, err := caddy.ParseDuration(w)
		if *to = caddy.Duration(parsed); err != nil || parsed <= 0 {
			return fmt.Errorf("invalid duration %q: use a value such as 90s, 5m or 1d", w)
		}
		return nil
	}
}

// DurationOrOff returns a setter that parses the word off as -1 and otherwise calls fallback.
func DurationOrOff(to *caddy.Duration, fallback Setter) Setter {
	return func(d *caddyfile.Dispenser) error {
		var off bool
		err := OrOff(&off, fallback)(d)
		if off {
			*to = -1
		}
		return err
	}
}

// Number returns a setter that parses a positive integer.
func Number(to *int) Setter { return wordParser(ParseNumber(to)) }

// ParseNumber returns a function that parses a positive integer.
func ParseNumber(to *int) func(string) error {
	return func(w string) (err error) {
		if *to, err = strconv.Atoi(w); err != nil || *to <= 0 {
			return fmt.Errorf("invalid value %q: use a positive integer", w)
		}
		return nil
	}
}

// NonNegativeNumber returns a setter that parses a non-negative integer.
func NonNegativeNumber(to *int) Setter {
	return wordParser(func(w string) (err error) {
		if *to, err = strconv.Atoi(w); err != nil || *to < 0 {
			return fmt.Errorf("invalid value %q: use 0 or a positive integer", w)
		}
		return nil
	})
}

// Size returns a setter that parses a size and stores it in bytes.
func Size(to *int64) Setter {
	return wordParser(func(w string) error {
		parsed, err := humanize.ParseBytes(w)
		if *to = int64(parsed); err != nil || *to <= 0 {
			return fmt.Errorf("invalid size %q: use a value such as 64KiB or 16MB", w)
		}
		return nil
	})
}

// PluginModule returns a setter that parses the name of a module in a namespace; the module parses the rest of the block.
func PluginModule(to *json.RawMessage, namespace, inlineKey string, check func(name string) error) Setter {
	return func(d *caddyfile.Dispenser) error {
		if !d.NextArg() {
			return d.ArgErr()
		}
		name := d.Val()
		if err := checkAll(d, check, []string{name}); err != nil {
			return err
		}
		module, err := caddyfile.UnmarshalModule(d, namespace+"."+name)
		if err != nil {
			return err
		}
		*to = caddyconfig.JSONModuleObject(module, inlineKey, name, nil)
		return nil
	}
}

// ClaimNames returns a setter that parses the gateway's name of a claim and, if it differs, the provider's name.
func ClaimNames(to *map[string]string, check func(map[string]string) error) Setter {
	return func(d *caddyfile.Dispenser) error {
		localName, remoteName, err := ParseOneOrTwo(d)
		if err != nil {
			return err
		}
		if _, ok := (*to)[localName]; ok {
			return d.Errf("duplicate token_claim %s", localName)
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[localName] = cmp.Or(remoteName, localName)
		return WithLine(d, check(*to))
	}
}

// DidYouMean returns the end of an error message, which suggests a correction for a word, or "" if no candidate is similar.
func DidYouMean(word string, candidates []string) string {
	if nearest := suggestion.Nearest(word, candidates); nearest != "" {
		return ": did you mean " + nearest + "?"
	}
	return ""
}
