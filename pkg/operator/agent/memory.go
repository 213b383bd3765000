package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubefusion/fusionctl/internal/filetree"
	"github.com/kubefusion/fusionctl/pkg/operator/api"
)

// memory is what an agent keeps on its machine of the object of its host: how far that came. A management cluster that
// was restored from a backup has an older one, and an operator that would put back yesterday's files, or have a step
// done that was done, and undone, since.
type memory struct {
	UID types.UID `json:"uid"`
	// Created is when that object was created, in seconds since 1970: one from before it is of the past, too.
	Created    int64  `json:"created,omitempty"`
	Generation int64  `json:"generation"`
	Task       int64  `json:"task"`
	Wanted     string `json:"wanted"` // of that generation
	// WentBack is what stopped the agent, until a person removes the file.
	WentBack string `json:"wentBack,omitempty"`
}

// memoryFile lies in the state directory.
const memoryFile = "seen.json"

// errWentBack is wrapped while the object is one of the past.
var errWentBack = errors.New("the management cluster went back")

func wantedOf(h *api.ControlPlaneHost) string {
	var wanted string
	if t := h.Spec.Task; t != nil {
		wanted = fmt.Sprintf("task %d %s", t.Number, t.Digest)
	}
	if u := h.Spec.Upkeep; u != nil {
		wanted += fmt.Sprintf(" upkeep %s %t", u.Digest, u.Repair)
	}
	return wanted
}

// of brings the memory to what the object is now. why says that it is older than the memory.
func (m memory) of(h *api.ControlPlaneHost) (now memory, why string) {
	now = memory{UID: h.UID, Generation: h.Generation, Wanted: wantedOf(h)}
	if t := h.Spec.Task; t != nil {
		now.Task = t.Number
	}
	if !h.CreationTimestamp.IsZero() {
		now.Created = h.CreationTimestamp.Unix()
	}
	if m.UID != h.UID {
		if m.Created != 0 && now.Created < m.Created { // one that was deleted, and replaced, since
			at := func(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }
			why = fmt.Sprintf("UID %s of %s after one of %s", h.UID, at(now.Created), at(m.Created))
		}
		return now, why
	}
	switch {
	case now.Generation < m.Generation:
		why = fmt.Sprintf("generation %d after %d", now.Generation, m.Generation)
	case now.Task < m.Task:
		why = fmt.Sprintf("task %d after %d", now.Task, m.Task)
	case now.Generation == m.Generation && now.Generation > 0 && now.Wanted != m.Wanted:
		why = fmt.Sprintf("another generation %d than before", now.Generation)
	}
	return now, why
}

// remember makes sure that the object of this host is not one of the past, before anything is done for it. A cache may
// be behind: then h becomes what the cluster has. Errors: errWentBack, until a person has decided; what the disk says.
func (a *agent) remember(ctx context.Context, h *api.ControlPlaneHost) error {
	file := filepath.Join(a.State, memoryFile)
	if a.memory == nil || a.memory.WentBack != "" { // a person may have removed the file
		a.memory = &memory{}
		data, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(data, a.memory)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			a.memory = nil
			return fmt.Errorf("reading %s, by which a restored management cluster is known: %w", file, err)
		}
	}
	now, why := a.memory.of(h)
	if why != "" && a.memory.WentBack == "" {
		there := &api.ControlPlaneHost{}
		if err := a.client.Get(ctx, client.ObjectKeyFromObject(h), there); err != nil {
			return fmt.Errorf("reading the object of this host: %w", err)
		}
		*h = *there
		now, why = a.memory.of(h)
	}
	if a.memory.UID == h.UID && a.memory.WentBack != "" {
		why = a.memory.WentBack
	}
	if why != "" {
		now = *a.memory
		now.WentBack = why
	}
	if now != *a.memory {
		if err := filetree.Private(a.State); err != nil {
			return err
		}
		data, err := json.Marshal(now)
		if err == nil {
			err = filetree.WriteFile(file, append(data, '\n'), 0o600)
		}
		if err != nil {
			return err
		}
		a.memory = &now
	}
	if why != "" {
		return fmt.Errorf("%w, as one that was restored from a backup: the object of this host has %s. Nothing is "+
			"done here until a person has seen that spec, record and hosts fit, and removed %s", errWentBack, why, file)
	}
	return nil
}
