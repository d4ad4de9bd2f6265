//! `tool_inventory`: the tools the model could see at the latest turn.

use agent_protocol::id::ArtifactId;
use agent_protocol::payload::tool::CatalogPolicy;
use agent_protocol::status::Mode;
use agent_protocol::{Event, Payload};
use serde::{Deserialize, Serialize};

use super::{Cursor, Fact, Fold, Step};

/// The catalogue in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolInventory {
    pub cursor: Cursor,
    pub catalog_hash: Fact<String>,
    pub catalog_ref: Option<ArtifactId>,
    pub mode: Fact<Mode>,
    pub as_of_sequence: Option<u64>,
    pub tools: Vec<InventoryTool>,
}

/// One tool of the catalogue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InventoryTool {
    pub tool_name: String,
    pub version: String,
    pub definition_hash: String,
    pub policy: CatalogPolicy,
    pub is_read_only: bool,
    pub is_destructive: bool,
}

impl Fold for ToolInventory {
    fn fold(&mut self, event: &Event) {
        match self.cursor.step(event) {
            Step::Again => return,
            Step::AfterGap => {
                self.catalog_hash.doubt();
                self.mode.doubt();
            }
            Step::Next => {}
        }
        if let Payload::ToolCatalogResolved(catalog) = &event.payload {
            self.catalog_hash = Fact::Known(catalog.catalog_hash.clone());
            self.catalog_ref = Some(catalog.catalog_ref.clone());
            self.mode = Fact::Known(catalog.mode);
            self.as_of_sequence = Some(event.sequence);
            self.tools = catalog
                .tools
                .iter()
                .map(|tool| InventoryTool {
                    tool_name: tool.tool_name.clone(),
                    version: tool.version.clone(),
                    definition_hash: tool.definition_hash.clone(),
                    policy: tool.policy,
                    is_read_only: tool.is_read_only,
                    is_destructive: tool.is_destructive,
                })
                .collect();
        }
    }
}
