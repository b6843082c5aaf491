package records

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// dice decide what is left to chance.
type dice struct{ *rand.Rand }

// chance is true as often as a probability says.
func (d dice) chance(p float64) bool { return d.Float64() < p }

// around is a number near another one, with some decimals.
func (d dice) around(middle, spread float64, decimals int) decimal {
	return decimal(fmt.Sprintf("%.*f", decimals, middle+(d.Float64()*2-1)*spread))
}

// workday is a time on one of the workdays after a day.
func (d dice) workday(after time.Time, days int) time.Time {
	at := after.AddDate(0, 0, d.IntN(days)).Add(time.Duration(d.IntN(30)) * 15 * time.Minute)
	for at.Weekday() == time.Saturday || at.Weekday() == time.Sunday {
		at = at.AddDate(0, 0, 1)
	}
	return at
}
