package client

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kubefusion/fusionctl/internal/cputest"
)

// TestNestedObjectsAreCarriedInTime: what is nested was compared at each depth, with what is below, and its path
// written.
func TestNestedObjectsAreCarriedInTime(t *testing.T) {
	const depth, width = 2000, 1000
	nested := func(hidden, value string) map[string]any {
		wide := map[string]any{hidden: "x", "value": value}
		for i := range width {
			wide[fmt.Sprint(i)] = "x"
		}
		object := wide
		for range depth {
			object = map[string]any{strings.Repeat("k", 500): object}
		}
		return object
	}
	current, seen, changed := nested("hidden", "a"), nested("shown", "a"), nested("shown", "b")
	if took := cputest.Thread(t, func() { Carry(current, seen, changed) }); took > 200*time.Millisecond {
		t.Errorf("%d levels took %v", depth, took)
	}
}

// TestCarryIsComparing: what was changed and what was seen is decided on the way, as comparing would decide it.
func TestCarryIsComparing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var value func(depth int) any
	object := func(depth int) map[string]any {
		made := map[string]any{}
		for range random.IntN(4) {
			made[string(rune('a'+random.IntN(3)))] = value(depth - 1)
		}
		return made
	}
	value = func(depth int) any {
		switch n := random.IntN(6); {
		case n < 3 && depth > 0:
			return object(depth)
		case n == 3:
			return []any{int64(random.IntN(2))}
		case n == 4:
			return map[string]any(nil)
		}
		return int64(random.IntN(2))
	}
	var alter func(of map[string]any) map[string]any
	alter = func(of map[string]any) map[string]any {
		made := map[string]any{}
		for key, held := range of {
			inner, nested := held.(map[string]any)
			switch n := random.IntN(8); {
			case n == 0:
			case n == 1:
				made[key] = value(1)
			case nested && inner != nil:
				made[key] = alter(inner)
			default:
				made[key] = held
			}
		}
		return made
	}
	for range 20000 {
		current := object(4)
		seen := alter(current)
		changed := alter(seen)
		got, losses := Carry(current, seen, changed)
		want, wanted := comparing(current, seen, changed, "")
		if !reflect.DeepEqual(got, want) || len(losses) != len(wanted) {
			t.Fatalf("of %v, %v, %v: %v with %d losses, want %v with %d", current, seen, changed, got, len(losses),
				want, len(wanted))
		}
		for _, loss := range losses {
			if !wanted[loss.Path] {
				t.Errorf("%q is no loss of %v", loss.Path, wanted)
			}
		}
	}
}

// comparing is Carry, by its definition: it also names the lists that are losses.
func comparing(current, seen, changed map[string]any, path string) (map[string]any, map[string]bool) {
	merged, losses := map[string]any{}, map[string]bool{}
	for key, value := range current {
		saw, wasSeen := seen[key]
		now, remains := changed[key]
		at := strings.TrimPrefix(path+"."+key, ".")
		a, x := value.(map[string]any)
		b, y := saw.(map[string]any)
		c, z := now.(map[string]any)
		switch {
		case !wasSeen && !remains || wasSeen && remains && reflect.DeepEqual(saw, now):
			merged[key] = value
		case !remains:
		case wasSeen && !reflect.DeepEqual(value, saw) && x && y && z:
			inner, lost := comparing(a, b, c, at)
			merged[key] = inner
			for path := range lost {
				losses[path] = true
			}
		default:
			if _, list := value.([]any); list && wasSeen && !reflect.DeepEqual(value, saw) {
				losses[at] = true
			}
			merged[key] = now
		}
	}
	for key, now := range changed {
		saw, wasSeen := seen[key]
		if _, ok := current[key]; !ok && !(wasSeen && reflect.DeepEqual(saw, now)) {
			merged[key] = now
		}
	}
	return merged, losses
}
